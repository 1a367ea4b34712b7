//! File systems for tests: small, read-only, hanging, or subject to a power loss.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{cleanup, until_blocking};

/// A file system, unmounted on drop.
#[derive(Debug)]
pub(crate) struct Disk {
    mount_point: PathBuf,
    /// The image file of an ext4 file system.
    image: Option<PathBuf>,
}

fn run(program: &str, args: &[&str]) -> Result<(), String> {
    let done = Command::new(program).args(args).output().map_err(|error| format!("{program}: {error}"))?;
    let failure = || format!("{program} {args:?}: {}", String::from_utf8_lossy(&done.stderr));
    if done.status.success() { Ok(()) } else { Err(failure()) }
}

impl Disk {
    /// Mounts a file system in memory at `mount_point`, with `options` such as `size=1m`. Prints the reason and returns
    /// `None` if mounting is not permitted.
    pub(crate) fn in_memory(mount_point: &Path, options: &str) -> Option<Self> {
        Self::mount(mount_point, None, &["-t", "tmpfs", "-o", options, "tmpfs"])
    }

    /// Mounts a new ext4 file system at `mount_point`, in an image file of `megabytes`. `None` as for [`Disk::in_memory`].
    pub(crate) fn ext4(mount_point: &Path, megabytes: u64) -> Option<Self> {
        let image = mount_point.with_extension("image");
        std::fs::File::create(&image).unwrap().set_len(megabytes << 20).unwrap();
        if let Err(why) = run("mkfs.ext4", &["-q", "-F", image.to_str().unwrap()]) {
            report_skipped(&why);
            return None;
        }
        Self::mount(mount_point, Some(image.clone()), &["-o", "loop", image.to_str().unwrap()])
    }

    fn mount(mount_point: &Path, image: Option<PathBuf>, args: &[&str]) -> Option<Self> {
        std::fs::create_dir_all(mount_point).unwrap();
        let mut args = args.to_vec();
        args.push(mount_point.to_str().unwrap());
        match run("mount", &args) {
            Ok(()) => {
                cleanup::register_mount(mount_point);
                Some(Self { mount_point: mount_point.to_owned(), image })
            }
            Err(why) => {
                report_skipped(&why);
                None
            }
        }
    }

    /// Remounts with other options, such as `ro`. Retries while a file is open for writing.
    pub(crate) fn remount(&self, options: &str) {
        let options = format!("remount,{options}");
        until_blocking("the file system is not in use", || {
            run("mount", &["-o", &options, self.mount_point.to_str().unwrap()])
        });
    }

    /// Fills the file system until the returned value is dropped.
    pub(crate) fn fill(&self) -> Filler {
        self.fill_as(".filler")
    }

    /// Fills the file system with one file of this name.
    pub(crate) fn fill_as(&self, name: &str) -> Filler {
        use std::io::Write as _;
        let path = self.mount_point.join(name);
        let mut file = std::fs::File::create(&path).unwrap();
        for size in [1 << 16, 1 << 12, 1] {
            while file.write(&vec![1; size]).is_ok_and(|written| written > 0) {}
        }
        Filler(vec![path])
    }

    /// As [`fill_as`](Self::fill_as), and leaves `bytes` free.
    pub(crate) fn fill_but(&self, name: &str, bytes: u64) -> Filler {
        let filler = self.fill_as(name);
        let file = std::fs::File::options().write(true).open(&filler.0[0]).unwrap();
        file.set_len(file.metadata().unwrap().len() - bytes).unwrap();
        filler
    }

    /// Blocks every write, as a hanging disk does, until the returned value is dropped.
    pub(crate) fn freeze(&self) -> Frozen {
        run("fsfreeze", &["--freeze", self.mount_point.to_str().unwrap()]).unwrap();
        Frozen(self.mount_point.clone())
    }

    /// Uses up all inodes until the returned value is dropped.
    pub(crate) fn fill_inodes(&self) -> Filler {
        let mut filler = Filler(Vec::new());
        loop {
            let path = self.mount_point.join(format!(".filler{}", filler.0.len()));
            match std::fs::File::create_new(&path) {
                Ok(_) => filler.0.push(path),
                Err(_) => return filler,
            }
        }
    }

    /// Simulates a power loss: unsynced data is lost, and every later call on the file system fails.
    pub(crate) fn cut_power(&self) {
        // From fs/ext4/ext4.h of the kernel. With the flag, the file system does not flush its journal.
        const SHUTDOWN: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<u32>(b'X', 125);
        const NO_LOG_FLUSH: u32 = 2;
        let folder = std::fs::File::open(&self.mount_point).unwrap();
        #[expect(unsafe_code, reason = "no safe wrapper exists for this ioctl, which takes a pointer to one u32")]
        unsafe {
            rustix::ioctl::ioctl(&folder, rustix::ioctl::Setter::<SHUTDOWN, u32>::new(NO_LOG_FLUSH)).unwrap();
        }
    }

    /// Remounts the file system, as a machine does after a power loss. No file may be open.
    pub(crate) fn restore_power(&self) {
        let mount_point = self.mount_point.to_str().unwrap();
        until_blocking("the file system is not in use", || run("umount", &[mount_point]));
        let image = self.image.as_ref().expect("only an ext4 image can be mounted again").to_str().unwrap();
        until_blocking("the file system is not in use", || run("mount", &["-o", "loop", image, mount_point]));
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = run("umount", &["-l", self.mount_point.to_str().unwrap()]);
        cleanup::unregister_mount(&self.mount_point);
    }
}

/// Files that fill a disk, removed on drop.
pub(crate) struct Filler(Vec<PathBuf>);

impl Drop for Filler {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// A hanging file system, released on drop.
pub(crate) struct Frozen(PathBuf);

impl Drop for Frozen {
    fn drop(&mut self) {
        run("fsfreeze", &["--unfreeze", self.0.to_str().unwrap()]).unwrap();
    }
}

fn report_skipped(why: &str) {
    eprintln!("SKIPPED: the test cannot mount a file system here ({})", why.trim());
}
