//! Nothing outlives the tests: a shell holds the names of processes and folders, and clears them when the tests' process
//! ends, however it ends. Shared servers live in statics, which Rust never drops, so `Drop` alone would not do.

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
# One that is frozen would hold for ever who waits for it; of the others this says no.
for mount in $mounts; do fsfreeze --unfreeze "$mount" 2>/dev/null; done
[ "$mounts" = " " ] || umount -l $mounts
chmod -R u+rwX "$0" 2>/dev/null
rm -rf "$0"
"#;

/// The folder of everything that the tests put on disk. Short, since sockets and deep trees lie in it.
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

fn tell(line: &str) {
    writeln!(base().1.lock().unwrap(), "{line}").unwrap();
}

/// The folder that no answer may ever name.
pub(crate) fn base_folder() -> &'static Path {
    &base().0
}

/// A new empty folder.
pub(crate) fn new_folder(what: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let folder = base_folder().join(format!("{what}{}", NEXT.fetch_add(1, Ordering::Relaxed)));
    std::fs::create_dir(&folder).unwrap();
    folder
}

/// Has process `id` killed at the end, unless [`ended`] is told of it.
pub(crate) fn watch(id: u32) {
    tell(&format!("+{id}"));
}

/// Process `id` has ended.
pub(crate) fn ended(id: u32) {
    tell(&format!("-{id}"));
}

/// Has `place` unmounted at the end, unless [`unmounted`] is told of it.
pub(crate) fn mounted(place: &Path) {
    tell(&format!("m{}", place.display()));
}

/// Nothing is mounted at `place` any more.
pub(crate) fn unmounted(place: &Path) {
    tell(&format!("u{}", place.display()));
}
