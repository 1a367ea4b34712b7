//! What is known of programs. Each list only makes an answer better: about what is missing in it a person is asked.

/// Programs that run the text after `-c`, a file, or what they read.
pub(super) const SHELLS: &str = "sh bash dash zsh ksh ash mksh";
/// Beginnings of the names of programs that run what they read, if they have no arguments.
pub(super) const INTERPRETERS: &str = "python perl ruby node php lua tclsh";
/// Built-in commands that change only the shell itself, and nothing that a later command means by its words.
pub(super) const BUILT_IN: &str = "cd true false : exit wait";
/// Beginnings of the names of variables that have a shell, or git, run something.
pub(super) const UNSAFE_VARIABLES: [&str; 4] = ["BASH_", "PS4", "PROMPT_COMMAND", "GIT_CONFIG"];

/// A program that runs the command after its own arguments as it is: its options, with `=` those that have a value, and how many other
/// arguments come before the command.
pub(super) type Starter = (&'static str, &'static str, usize);

/// Those that do nothing else, so that the command alone is judged.
pub(super) const STARTERS: &[Starter] = &[
    ("env", "-i - -0 -v -u= -C=", 0),
    ("command", "-p", 0),
    ("builtin", "", 0),
    ("exec", "-c -l -a=", 0),
    ("nohup", "", 0),
    ("time", "-p", 0),
    ("nice", "-n=", 0),
    ("timeout", "-v --foreground --preserve-status -k= -s= --kill-after= --signal=", 1),
    ("setsid", "-c -f -w", 0),
    ("stdbuf", "-i= -o= -e=", 0),
];

/// Those that must be allowed themselves.
pub(super) const LAUNCHERS: &[Starter] = &[
    ("sudo", "-n -E -H -b -k -S -u= -g= -p= -D= --user= --group= --preserve-env=", 0),
    ("doas", "-n -u=", 0),
    (
        "xargs",
        "-0 -r -t -x --null --no-run-if-empty -n= -P= -I= -L= -d= -a= -s= --max-args= --max-procs= --arg-file=",
        0,
    ),
    ("docker exec", "-i -t -it -ti -d -e= -u= -w= --env= --user= --workdir=", 1),
    ("npx", "-y --yes --no-install -p= --package=", 0),
    ("npm exec", "-y --yes --package=", 0),
    ("pnpm exec", "", 0),
    ("poetry run", "", 0),
    ("pipenv run", "", 0),
    ("uv run", "--frozen --locked --with= --extra= --group= --python= -p=", 0),
    ("bundle exec", "", 0),
    ("busybox", "", 0),
    ("python -m", "", 0),
    ("python3 -m", "", 0),
];

/// Programs that run nothing in their arguments, as patterns. After `!`, the beginnings of arguments with which they do.
pub(super) const READERS: &str = "echo;printf !-v;cat;ls;grep;egrep;fgrep;rg !--pre !--hostname-bin;head;tail;wc;sort !--compress-program;uniq;cut;tr;\
    tee;diff;cmp;stat;file;test;[;[[;type;which;command;man !-P !--pager !-H !--html;mkdir;touch;rm;rmdir;cp;mv;ln;chmod;cd;read;jq;\
    basename;dirname;realpath;ps;pgrep;pkill;dpkg -l;dpkg -L;find;sed !-f !--file;make !--eval !-E !-f !--file !--makefile;\
    tar !-I !-F !--use-compress-program !--to-command !--checkpoint-action !--info-script !--new-volume-script !--rsh-command !--rmt-command;\
    pytest;jest;vitest;cargo test !--config;cargo add;cargo build !--config;\
    go test !-exec !-toolexec !--exec !--toolexec;go build !-toolexec !--toolexec;npm test;npm install;npm run;docker build;\
    apt-get install !-o !--option;apt install !-o !--option;apk add;brew install;pip install;yum install;dnf install;\
    git add;git commit;git log;git grep !-O !--open-files-in-pager;git show;git diff;git status;git tag;git stash;git checkout;git branch;\
    git merge;git notes;gh pr;gh issue";

/// The options before a subcommand that have a value, of programs whose other options have none. A `!` marks those that may change what
/// the subcommand does.
pub(super) const SUBCOMMAND_OPTIONS: [(&str, &str); 3] = [
    ("git", "-C --git-dir --work-tree --namespace --super-prefix --attr-source !-c !--config-env !--exec-path"),
    ("cargo", "-C --color --explain !-Z !--config"),
    ("docker", "-c --context -H --host -l --log-level --tlscacert --tlscert --tlskey !--config"),
];

/// Long options that have their first letter as a short form.
pub(super) const LONG_OPTIONS: &str = "all delete force global interactive quiet recursive verbose yes";

/// Whether a list has a word.
pub(super) fn has(list: &str, word: &str) -> bool {
    list.split(' ').any(|one| one == word)
}
