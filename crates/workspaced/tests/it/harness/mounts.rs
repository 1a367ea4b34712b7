//! File systems of a test's own: small ones, ones that can be made read-only, ones whose power is cut.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::reaper;

/// A file system that is mounted until it is dropped.
#[derive(Debug)]
pub(crate) struct Disk {
    place: PathBuf,
    /// The file that an ext4 lies in.
    image: Option<PathBuf>,
}

fn run(program: &str, args: &[&str]) -> Result<(), String> {
    let done = Command::new(program).args(args).output().map_err(|error| format!("{program}: {error}"))?;
    let told = || format!("{program} {args:?}: {}", String::from_utf8_lossy(&done.stderr));
    if done.status.success() { Ok(()) } else { Err(told()) }
}

impl Disk {
    /// A file system in memory at `place`, with `options` such as `size=1m`; `None` where this machine or this user may not
    /// mount one, which is said.
    pub(crate) fn in_memory(place: &Path, options: &str) -> Option<Self> {
        Self::mount(place, None, &["-t", "tmpfs", "-o", options, "tmpfs"])
    }

    /// A new ext4 at `place`, in a file of `megabytes` beside it; `None` as for [`Disk::in_memory`].
    pub(crate) fn ext4(place: &Path, megabytes: u64) -> Option<Self> {
        let image = place.with_extension("image");
        std::fs::File::create(&image).unwrap().set_len(megabytes << 20).unwrap();
        if let Err(why) = run("mkfs.ext4", &["-q", "-F", image.to_str().unwrap()]) {
            left_out(&why);
            return None;
        }
        Self::mount(place, Some(image.clone()), &["-o", "loop", image.to_str().unwrap()])
    }

    fn mount(place: &Path, image: Option<PathBuf>, args: &[&str]) -> Option<Self> {
        std::fs::create_dir_all(place).unwrap();
        let mut args = args.to_vec();
        args.push(place.to_str().unwrap());
        match run("mount", &args) {
            Ok(()) => {
                reaper::mounted(place);
                Some(Self { place: place.to_owned(), image })
            }
            Err(why) => {
                left_out(&why);
                None
            }
        }
    }

    /// Mounts it with other options, such as `ro`. Waits for whoever writes just now.
    pub(crate) fn remount(&self, options: &str) {
        let options = format!("remount,{options}");
        patiently(|| run("mount", &["-o", &options, self.place.to_str().unwrap()]));
    }

    /// Fills it to the last byte, until the answer is dropped.
    pub(crate) fn fill(&self) -> Filler {
        self.fill_as(".filler")
    }

    /// Fills it to the last byte with a file of this name.
    pub(crate) fn fill_as(&self, name: &str) -> Filler {
        use std::io::Write as _;
        let place = self.place.join(name);
        let mut file = std::fs::File::create(&place).unwrap();
        for size in [1 << 16, 1 << 12, 1] {
            while file.write(&vec![1; size]).is_ok_and(|written| written > 0) {}
        }
        Filler(vec![place])
    }

    /// Has every write to it wait, as a disk that hangs does, until the answer is dropped.
    pub(crate) fn freeze(&self) -> Frozen {
        run("fsfreeze", &["--freeze", self.place.to_str().unwrap()]).unwrap();
        Frozen(self.place.clone())
    }

    /// Uses up every name that it can have, until the answer is dropped.
    pub(crate) fn fill_names(&self) -> Filler {
        let mut filler = Filler(Vec::new());
        loop {
            let place = self.place.join(format!(".filler{}", filler.0.len()));
            match std::fs::File::create_new(&place) {
                Ok(_) => filler.0.push(place),
                Err(_) => return filler,
            }
        }
    }

    /// Cuts the power: what was not synced by now never will be. Every call on it fails from here on.
    pub(crate) fn cut_power(&self) {
        // From the kernel's fs/ext4/ext4.h; the flag says that the journal's log is not flushed either.
        const SHUTDOWN: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<u32>(b'X', 125);
        const NO_LOG_FLUSH: u32 = 2;
        let folder = std::fs::File::open(&self.place).unwrap();
        #[expect(unsafe_code, reason = "the only way to this call of the kernel, which takes a pointer to one u32")]
        unsafe {
            rustix::ioctl::ioctl(&folder, rustix::ioctl::Setter::<SHUTDOWN, u32>::new(NO_LOG_FLUSH)).unwrap();
        }
    }

    /// Unmounts and mounts it again, as a machine does that gets its power back. Nobody may have a file of it open.
    pub(crate) fn restore_power(&self) {
        let place = self.place.to_str().unwrap();
        patiently(|| run("umount", &[place]));
        let image = self.image.as_ref().expect("only an ext4 outlives its mount").to_str().unwrap();
        patiently(|| run("mount", &["-o", "loop", image, place]));
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = run("umount", &["-l", self.place.to_str().unwrap()]);
        reaper::unmounted(&self.place);
    }
}

/// What fills a disk.
pub(crate) struct Filler(Vec<PathBuf>);

impl Drop for Filler {
    fn drop(&mut self) {
        for place in &self.0 {
            let _ = std::fs::remove_file(place);
        }
    }
}

/// A disk that hangs.
pub(crate) struct Frozen(PathBuf);

impl Drop for Frozen {
    fn drop(&mut self) {
        run("fsfreeze", &["--unfreeze", self.0.to_str().unwrap()]).unwrap();
    }
}

fn left_out(why: &str) {
    eprintln!("LEFT OUT: this machine lets the tests mount no file system of their own ({})", why.trim());
}

fn patiently(work: impl Fn() -> Result<(), String>) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while let Err(why) = work() {
        assert!(Instant::now() < deadline, "{why}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
