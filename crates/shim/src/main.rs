//! The program that is copied into a sandbox. It speaks frames on standard input and output; only `workspaced` starts it.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let (mode, folder, more) = (arguments.next(), arguments.next().map(PathBuf::from), arguments.next());
    let (is_fresh, Some(folder), None) = (mode.as_deref().is_some_and(|mode| mode == "fresh"), folder, more) else {
        return fail("usage: workspaced-shim folder|fresh FOLDER; `workspaced exec --in` starts it");
    };
    let output = match io::stdout().as_fd().try_clone_to_owned() {
        Ok(output) => BufWriter::with_capacity(256 << 10, File::from(output)),
        Err(error) => return fail(&error.to_string()),
    };
    match shim::serve(&folder, is_fresh, io::stdin(), output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error.to_string()),
    }
}

fn fail(why: &str) -> ExitCode {
    // If standard error is closed the exit code remains.
    let _ = writeln!(io::stderr(), "workspaced-shim: {why}");
    ExitCode::FAILURE
}
