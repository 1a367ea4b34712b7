//! The program that is copied into a sandbox, over a real pipe.

#![expect(clippy::unwrap_used, reason = "this is a test")]

use std::io::{BufReader, BufWriter, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use shim::{CheckedOut, CommandFolder as _, CommandSpec, LocalFolder, ReadLimits, RemoteFolder, ShimError};

const LIMITS: ReadLimits = ReadLimits { max_file_bytes: 64 << 20, max_total_bytes: 64 << 20 };

type Remote = RemoteFolder<BufReader<ChildStdout>, BufWriter<ChildStdin>>;

fn start(mode: &str, folder: &Path) -> (Child, Remote) {
    let mut shim = Command::new(env!("CARGO_BIN_EXE_workspaced-shim"));
    let mut child = shim.arg(mode).arg(folder).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let remote = RemoteFolder::connect(BufReader::new(stdout), BufWriter::new(stdin)).unwrap();
    (child, remote)
}

fn checked_out(seq: u64) -> CheckedOut {
    CheckedOut { run: "run_1".to_owned(), seq, head_hash: String::new() }
}

fn shell(script: &str) -> CommandSpec {
    CommandSpec { argv: ["sh", "-c", script].map(str::to_owned).to_vec(), ..CommandSpec::default() }
}

/// Waits for a condition that another process makes true. Panics with `what` it has waited for.
fn until(what: &str, is_true: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_true() {
        assert!(began.elapsed() < Duration::from_mins(1), "waited for a minute: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A layer with `count` files.
fn layer(count: usize) -> Vec<u8> {
    let source = tempfile::tempdir().unwrap();
    let mut folder = LocalFolder::open(source.path()).unwrap();
    folder.apply(&checked_out(1), &mut [0; 1024].as_slice()).unwrap();
    let paths: Vec<_> = (0..count).map(|number| format!("d{}/{number}", number % 7)).collect();
    for path in &paths {
        std::fs::create_dir_all(source.path().join(path).parent().unwrap()).unwrap();
        std::fs::write(source.path().join(path), path.repeat(50)).unwrap();
    }
    let mut layer = Vec::new();
    assert_eq!(folder.read(&paths, LIMITS, &mut layer).unwrap().entries, count as u64);
    layer
}

#[test]
fn a_sandbox_gets_a_checkout_runs_a_command_and_says_what_changed() {
    let sandbox = tempfile::tempdir().unwrap();
    let (mut child, mut remote) = start("folder", sandbox.path());
    assert_eq!(remote.have().unwrap(), None);
    assert!(matches!(remote.scan(&[]), Err(ShimError::Refused(_))));
    let applied = remote.apply(&checked_out(1), &mut layer(2000).as_slice()).unwrap();
    assert_eq!((applied.written, remote.tree_sha256().unwrap().len()), (2000, 64));
    assert_eq!(remote.have().unwrap(), Some(checked_out(1)));

    let mut output = String::new();
    let script = "for f in d*/*; do echo x > $f; done; rm d1/1; echo new > new; printf out; printf err >&2; exit 5";
    let outcome = remote.exec(&shell(script), &mut |_| {}, &mut |_, chunk| {
        output += std::str::from_utf8(chunk).unwrap();
        Ok(())
    });
    assert_eq!(outcome.unwrap().exit_code, Some(5));
    assert!(output == "outerr" || output == "errout", "{output}");

    let changes = remote.scan(&[]).unwrap().changes;
    assert_eq!(changes.len(), 2001);
    let paths: Vec<_> = changes.into_iter().map(|change| change.path).collect();
    let mut changed = Vec::new();
    let report = remote.read(&paths, LIMITS, &mut changed).unwrap();
    assert_eq!((report.entries, report.torn, report.left), (2001, vec![], vec![]));
    remote.confirm(&paths).unwrap();
    assert_eq!(remote.scan(&[]).unwrap().changes, vec![]);

    // What the folder has already is not written again, and a change of its own to such a file stays.
    std::fs::write(sandbox.path().join("new"), "mine").unwrap();
    let again = remote.apply(&checked_out(1), &mut changed.as_slice()).unwrap();
    assert_eq!((again.written, again.deleted, again.conflicts), (0, 0, vec![]));
    assert_eq!(std::fs::read_to_string(sandbox.path().join("new")).unwrap(), "mine");

    // A conflict is one across the pipe too, and what failed leaves the connection usable.
    let other = tempfile::tempdir().unwrap();
    let mut folder = LocalFolder::open(other.path()).unwrap();
    folder.apply(&checked_out(1), &mut [0; 1024].as_slice()).unwrap();
    std::fs::write(other.path().join("new"), "theirs").unwrap();
    let mut theirs = Vec::new();
    folder.read(&["new".to_owned()], LIMITS, &mut theirs).unwrap();
    let pulled = remote.apply(&checked_out(2), &mut theirs.as_slice()).unwrap();
    assert!(pulled.conflicts.len() == 1 && pulled.conflicts[0].path == "new", "{pulled:?}");
    assert_eq!(std::fs::read_to_string(sandbox.path().join("new")).unwrap(), "mine");
    assert_eq!(remote.have().unwrap(), Some(checked_out(1)));
    let cut = remote.apply(&checked_out(2), &mut changed.as_slice().take(5000).chain(Broken)).unwrap_err();
    assert!(cut.to_string().contains("the service went away"), "{cut}");
    assert_eq!(remote.have().unwrap(), Some(checked_out(1)));
    drop(remote);
    assert!(child.wait().unwrap().success());
}

struct Broken;

impl std::io::Read for Broken {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        Err(std::io::Error::other("the service went away"))
    }
}

#[test]
fn a_lost_pipe_ends_the_command_and_the_shim() {
    let sandbox = tempfile::tempdir().unwrap();
    let pid = sandbox.path().join("pid");
    let mut shim = Command::new(env!("CARGO_BIN_EXE_workspaced-shim"));
    let mut child =
        shim.arg("folder").arg(sandbox.path()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let request = br#"{"op":"exec","command":{"argv":["sh","-c","echo $$ > pid; trap '' INT TERM; sleep 600"],"cwd":"","env":[]}}"#;
    stdin.write_all(&[1]).unwrap();
    stdin.write_all(&u32::try_from(request.len()).unwrap().to_le_bytes()).unwrap();
    stdin.write_all(request).unwrap();
    until("the command writes its ID", || std::fs::read_to_string(&pid).is_ok_and(|text| text.ends_with('\n')));
    let command = std::fs::read_to_string(&pid).unwrap();
    assert!(Path::new("/proc").join(command.trim()).exists());
    drop(stdin);
    let mut rest = Vec::new();
    stdout.read_to_end(&mut rest).unwrap();
    child.wait().unwrap();
    assert!(!Path::new("/proc").join(command.trim()).exists());
}

#[test]
fn a_signal_that_comes_before_the_command_has_started_reaches_it() {
    let sandbox = tempfile::tempdir().unwrap();
    let (mut child, mut remote) = start("folder", sandbox.path());
    for _ in 0..20 {
        // The shim has not read the operation yet, let alone started the command.
        let outcome = remote.exec(&shell("sleep 600"), &mut |control| control.kill(), &mut |_, _| Ok(()));
        assert_eq!(outcome.unwrap().signal, Some(9));
    }
    // One that comes after a command is not for the next.
    let mut control = None;
    remote.exec(&shell("true"), &mut |started| control = Some(started), &mut |_, _| Ok(())).unwrap();
    control.take().unwrap().kill();
    assert_eq!(remote.exec(&shell("exit 3"), &mut |_| {}, &mut |_, _| Ok(())).unwrap().exit_code, Some(3));
    drop(remote);
    assert!(child.wait().unwrap().success());
}

#[test]
fn an_interrupt_reaches_the_command_across_the_pipe() {
    let sandbox = tempfile::tempdir().unwrap();
    let (mut child, mut remote) = start("folder", sandbox.path());
    let mut control = None;
    let mut output = Vec::new();
    let command = shell("trap 'echo interrupted; exit 9' INT; echo ready; while :; do sleep 0.1; done");
    let cell = std::cell::RefCell::new(&mut control);
    let outcome = remote.exec(&command, &mut |started| **cell.borrow_mut() = Some(started), &mut |_, chunk| {
        output.extend_from_slice(chunk);
        if output == b"ready\n" {
            cell.borrow().as_ref().unwrap().signal(2);
        }
        Ok(())
    });
    assert_eq!((outcome.unwrap().exit_code, output.as_slice()), (Some(9), b"ready\ninterrupted\n".as_slice()));
    drop((control, remote));
    child.wait().unwrap();
}

#[test]
fn a_fresh_folder_is_new_and_goes_with_the_shim() {
    let parent = tempfile::tempdir().unwrap();
    let (mut child, mut remote) = start("fresh", parent.path());
    assert!(Path::new(remote.path()).starts_with(parent.path().canonicalize().unwrap()));
    remote.apply(&checked_out(1), &mut layer(10).as_slice()).unwrap();
    let outcome = remote.exec(&shell("ls d0 > listed"), &mut |_| {}, &mut |_, _| Ok(())).unwrap();
    assert_eq!(outcome.exit_code, Some(0));
    assert_eq!(remote.scan(&[]).unwrap().changes.len(), 1);
    drop(remote);
    child.wait().unwrap();
    assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);
}

#[test]
fn what_is_no_shim_is_no_sandbox() {
    for script in ["", "echo hello", "printf '\\000\\377\\377\\377\\377'", "head -c 1000000 /dev/zero"] {
        let mut child = Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let stdout = child.stdout.take().unwrap();
        let refused = RemoteFolder::connect(stdout, Vec::new()).unwrap_err();
        assert!(matches!(refused, ShimError::Lost(_)), "{script}: {refused}");
        child.wait().unwrap();
    }
}

/// A command can stop the shim that has started it, and with that everybody who waits for the folder.
#[test]
fn a_stopped_shim_gives_its_folder_back_and_its_command_ends_with_it() {
    let sandbox = tempfile::tempdir().unwrap();
    let (mut stopped, mut remote) = start("folder", sandbox.path());
    remote.apply(&checked_out(1), &mut layer(1).as_slice()).unwrap();
    let running = std::thread::spawn(move || {
        remote.exec(&shell("echo $$ > pid; kill -STOP $PPID; sleep 600"), &mut |_| {}, &mut |_, _| Ok(()))
    });
    let state = format!("/proc/{}/stat", stopped.id());
    until("it is stopped", || std::fs::read_to_string(&state).unwrap().contains(") T "));
    let (mut next, mut remote) = start("folder", sandbox.path());
    assert_eq!(remote.have().unwrap(), Some(checked_out(1)));
    assert!(matches!(running.join().unwrap(), Err(ShimError::Lost(_))));
    stopped.wait().unwrap();
    let pid = std::fs::read_to_string(sandbox.path().join("pid")).unwrap();
    until("its command ends", || !Path::new(&format!("/proc/{}/exe", pid.trim())).exists());
    drop(remote);
    next.wait().unwrap();
}
