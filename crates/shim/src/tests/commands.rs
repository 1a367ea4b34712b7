//! Commands: output, signals, and what they leave behind.

use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use super::Checkout;
use crate::{CommandFolder as _, CommandOutcome, CommandSpec, OutputStream, ShimError};

fn shell(script: &str) -> CommandSpec {
    CommandSpec { argv: ["sh", "-c", script].map(str::to_owned).to_vec(), ..CommandSpec::default() }
}

fn run(checkout: &mut Checkout, command: &CommandSpec) -> (CommandOutcome, String, String) {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let outcome = checkout.folder.exec(command, &mut |_| {}, &mut |stream, chunk| {
        let kept = if stream == OutputStream::Stdout { &mut stdout } else { &mut stderr };
        kept.extend_from_slice(chunk);
        Ok(())
    });
    (outcome.unwrap(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

#[test]
fn a_command_has_its_folder_environment_output_and_exit_code() {
    let mut checkout = Checkout::of(&[("d/a", "1")]);
    let mut command = shell("cat a; echo $X >&2; exit 3");
    command.cwd = "./d/".to_owned();
    command.env.push(("X".to_owned(), "y".to_owned()));
    let (outcome, stdout, stderr) = run(&mut checkout, &command);
    assert_eq!((outcome.exit_code, outcome.shell_code(), &*stdout, &*stderr), (Some(3), 3, "1", "y\n"));
    command.cwd = "../".to_owned();
    let refused = checkout.folder.exec(&command, &mut |_| {}, &mut |_, _| Ok(())).unwrap_err();
    assert!(matches!(refused, ShimError::Refused(_)));
    let missing = CommandSpec { argv: vec!["no-such-program".to_owned()], ..CommandSpec::default() };
    let failed = checkout.folder.exec(&missing, &mut |_| {}, &mut |_, _| Ok(())).unwrap_err();
    assert!(failed.to_string().starts_with("no-such-program: "), "{failed}");
}

#[test]
fn all_output_arrives_however_much_it_is() {
    let mut checkout = Checkout::of(&[]);
    let (outcome, stdout, _) = run(&mut checkout, &shell("head -c 5000000 /dev/zero | tr '\\0' x; echo end"));
    assert_eq!((outcome.exit_code, stdout.len()), (Some(0), 5_000_004));
    assert!(stdout.ends_with("xend\n"));
}

#[test]
fn a_signal_reaches_all_processes_of_a_command() {
    let mut checkout = Checkout::of(&[]);
    let (sender, controls) = channel();
    let began = Instant::now();
    let command = shell("trap 'echo got it; exit 7' INT; sleep 600 & echo ready; wait");
    let mut output = Vec::new();
    let outcome = checkout.folder.exec(&command, &mut |control| sender.send(control).unwrap(), &mut |_, chunk| {
        output.extend_from_slice(chunk);
        if output == b"ready\n" {
            controls.recv().unwrap().signal(2);
        }
        Ok(())
    });
    assert_eq!((outcome.unwrap().exit_code, output.as_slice()), (Some(7), b"ready\ngot it\n".as_slice()));
    assert!(began.elapsed() < Duration::from_mins(5));
}

#[test]
fn a_command_whose_output_nobody_takes_is_killed() {
    let mut checkout = Checkout::of(&[]);
    let done = checkout
        .folder
        .exec(&shell("echo a; sleep 600"), &mut |_| {}, &mut |_, _| Err(std::io::Error::other("nobody is there")));
    assert!(matches!(done, Err(ShimError::Lost(_))));
}

#[test]
fn what_a_command_leaves_running_ends_with_it() {
    let mut checkout = Checkout::of(&[]);
    // One keeps the output open in the same group, one in a group of its own.
    let script = "(sleep 600; echo late > late) & setsid sh -c 'sleep 30' & echo done";
    let began = Instant::now();
    let (outcome, stdout, _) = run(&mut checkout, &shell(script));
    assert_eq!((outcome.exit_code, &*stdout), (Some(0), "done\n"));
    assert!(began.elapsed() < Duration::from_secs(25));
    assert_eq!(checkout.changes(), Vec::<String>::new());
}
