//! Removes processes, mounts and folders of the tests. A shell process does it when the test process ends for any reason.
//! `Drop` alone is not enough: shared servers are statics, which Rust never drops.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};

const SCRIPT: &str = r#"
trap '' INT TERM HUP
live=" "
mounts=" "
while read -r word; do
  case $word in
    +*) live="$live${word#+} " ;;
    -*) live=$(printf %s "$live" | sed "s/ ${word#-} / /") ;;
    m*) mounts="$mounts${word#m} " ;;
    u*) mounts=$(printf %s "$mounts" | sed "s: ${word#u} : :") ;;
  esac
done
[ "$live" = " " ] || kill -9 $live
# A process that waits for a frozen file system never ends. For other file systems this has no effect.
for mount in $mounts; do fsfreeze --unfreeze "$mount" 2>/dev/null; done
[ "$mounts" = " " ] || umount -l $mounts
chmod -R u+rwX "$0" 2>/dev/null
rm -rf "$0"
"#;

/// The root folder of all files of the tests. The path is short because it contains sockets and deep trees.
fn base() -> &'static (PathBuf, Mutex<ChildStdin>) {
    static BASE: OnceLock<(PathBuf, Mutex<ChildStdin>)> = OnceLock::new();
    BASE.get_or_init(|| {
        let base = tempfile::Builder::new().prefix("wsd-it-").tempdir().unwrap().keep().canonicalize().unwrap();
        let mut shell = Command::new("sh");
        let shell = shell.arg("-c").arg(SCRIPT).arg(&base).stdin(Stdio::piped()).stdout(Stdio::null());
        let stdin = shell.spawn().expect("a shell").stdin.take().unwrap();
        (base, Mutex::new(stdin))
    })
}

fn send(line: &str) {
    writeln!(base().1.lock().unwrap(), "{line}").unwrap();
}

/// Returns the root folder, which no answer may contain.
pub(crate) fn base_folder() -> &'static Path {
    &base().0
}

/// Creates an empty folder.
pub(crate) fn new_folder(what: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let folder = base_folder().join(format!("{what}{}", NEXT.fetch_add(1, Ordering::Relaxed)));
    std::fs::create_dir(&folder).unwrap();
    folder
}

/// Registers process `id` to be killed at the end.
pub(crate) fn register_process(id: u32) {
    send(&format!("+{id}"));
}

/// Unregisters process `id`, which has ended.
pub(crate) fn unregister_process(id: u32) {
    send(&format!("-{id}"));
}

/// Registers `mount_point` to be unmounted at the end.
pub(crate) fn register_mount(mount_point: &Path) {
    send(&format!("m{}", mount_point.display()));
}

/// Unregisters `mount_point`, which is unmounted.
pub(crate) fn unregister_mount(mount_point: &Path) {
    send(&format!("u{}", mount_point.display()));
}
