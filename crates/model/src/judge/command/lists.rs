//! What is known of programs. Each list only makes an answer better: about what is missing in it a person is asked.

/// Programs that run the text after `-c`, a file, or what they read.
pub(super) const SHELLS: &str = "sh bash dash zsh ksh ash mksh";
/// Programs that run what they read, if they have no arguments.
pub(super) const INTERPRETERS: &str = "python python3 perl ruby node php lua";
/// Built-in commands that change only the shell itself, and nothing that a later command means by its words.
pub(super) const BUILT_IN: &str = "cd true false : exit wait";

/// Programs that run the command after their own arguments as it is: their options, with `=` those that have a value, and how many other
/// arguments come before the command.
pub(super) const STARTERS: [(&str, &str, usize); 10] = [
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

/// Other programs, and arguments, after which a command follows somewhere.
pub(super) const LAUNCHERS: &str = "sudo doas xargs parallel ssh watch flock chroot strace busybox npx";
pub(super) const LAUNCHING: &str = "exec run foreach -exec -execdir -ok -okdir";

/// Programs that run nothing in their arguments, as patterns.
pub(super) const READERS: &str = "echo;printf;cat;ls;grep;egrep;fgrep;rg;head;tail;wc;sort;uniq;cut;tr;tee;diff;cmp;stat;file;test;[;[[;\
    command;type;which;man;mkdir;touch;rm;rmdir;cp;mv;ln;chmod;cd;read;jq;basename;dirname;realpath;pytest;jest;vitest;\
    cargo test;cargo add;go test;npm test;npm install;git add;git commit;git log;git grep;git show;git diff;git status;\
    git tag;git stash;git checkout;git branch;gh pr;gh issue";

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
