//! A run's files in a folder, here or in a sandbox: checkouts, commands, and sets of changes.
//!
//! A [`Checkout`] keeps its folder open, and with it the connection to a sandbox: several commands run in it one after the other.
//! Operations on the folder run on threads that may block. Nothing is printed.
//!
//! ```no_run
//! # async fn example(client: workspaced_client::Client, run: workspaced_client::RunId) -> Result<(), workspaced_client::FolderError> {
//! use workspaced_client::{Checkout, ExecMode, ExecOptions, FolderPlace, PushOptions, SandboxPlace};
//!
//! let web = FolderPlace::Sandbox(SandboxPlace::new("docker:web".parse()?));
//! let mut checkout = Checkout::open(&client, &run, &web).await?;
//! let format = ExecOptions { mode: ExecMode::Push(PushOptions::default()), ..ExecOptions::argv(["cargo", "fmt"]) };
//! let done = checkout.exec(&format, &mut |_, chunk| print!("{}", String::from_utf8_lossy(chunk))).await?;
//! println!("exit code {:?}, {} changed, {:?}", done.execution.outcome.exit_code, done.report.changes.len(), done.recorded);
//! let test = ExecOptions { mode: ExecMode::Test, ..ExecOptions::shell("make check") };
//! checkout.exec(&test, &mut |_, _| {}).await?;
//! checkout.close().await
//! # }
//! ```

mod address;
mod checkout;
mod command;
mod differing;
mod error;
mod exec;
mod kept_output;
mod never_taken;
mod pipe;
mod place;
mod serve;

pub use self::address::SandboxAddress;
pub use self::checkout::{ChangedLayer, Checkout, Pulled, PushOptions, Pushed, ScanScope};
pub use self::command::{CommandSignals, Execution};
pub use self::error::FolderError;
pub use self::exec::{ExecMode, ExecOptions, Executed, RecordedCommand};
pub use self::place::{FolderPlace, OpenFolder, SandboxPlace};
pub use self::serve::{PausedRunner, Runner, ServedCommand};
