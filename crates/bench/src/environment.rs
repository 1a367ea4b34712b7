//! The machine and the build of the measurement.

use std::fs;
use std::path::Path;

/// Describes the machine, the build and the file system of `folder` in one line.
pub(crate) fn describe(folder: &Path) -> String {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let kernel = read("/proc/sys/kernel/osrelease");
    let processor = read("/proc/cpuinfo")
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or_else(|| "unknown processor".to_owned(), |(_, name)| name.to_owned());
    let load = read("/proc/loadavg").split(' ').next().unwrap_or_default().to_owned();
    let profile = if cfg!(debug_assertions) { "debug build" } else { "release build" };
    format!("{cores} cores ({processor}), Linux {kernel}, {}, {profile}, load {load} at start", file_system(folder))
}

fn read(file: &str) -> String {
    fs::read_to_string(file).unwrap_or_default().trim().to_owned()
}

/// Returns the type of the file system of `folder`: that of its longest mount point.
fn file_system(folder: &Path) -> String {
    let folder = folder.canonicalize().unwrap_or_default();
    let mounts = read("/proc/mounts");
    let above = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (point, kind) = (words.next()?, words.next()?);
        folder.starts_with(point).then_some((point.len(), kind))
    });
    above.max_by_key(|(length, _)| *length).map_or("unknown", |(_, kind)| kind).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_names_cores_kernel_file_system_and_build() {
        let line = describe(Path::new("/proc"));
        assert!(line.contains(" cores (") && line.contains(", Linux ") && line.contains(", proc, "), "{line}");
    }
}
