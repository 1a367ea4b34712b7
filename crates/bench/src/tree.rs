//! A generated source tree with realistic sizes: many small files, few large ones, about eight files per folder.

use std::fs;
use std::path::{Path, PathBuf};

use crate::text::{Rng, line};

/// A literal that occurs in three files of a tree.
pub(crate) const RARE_LITERAL: &str = "quill_of_the_northern_heron";
/// A literal that occurs once in each of about [`COMMON_FILES`] files of a tree, followed by a number in parentheses.
pub(crate) const COMMON_LITERAL: &str = "reed_of_the_southern_marsh";
const COMMON_FILES: usize = 300;

/// The size of a generated tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TreeSize {
    /// Number of files.
    pub(crate) files: usize,
    /// Number of folders under the root.
    pub(crate) folders: usize,
    /// Total size of all files in bytes.
    pub(crate) bytes: u64,
}

/// File name extensions, with the frequencies of real trees.
const EXTENSIONS: [&str; 8] = ["rs", "rs", "rs", "rs", "h", "c", "md", "toml"];
const FILES_PER_FOLDER: usize = 8;

/// Writes `files` files with a total of about `bytes` bytes to `folder`, which must be empty or missing.
///
/// # Errors
///
/// When the folder is not empty or cannot be written.
pub(crate) fn generate(folder: &Path, files: usize, bytes: u64) -> anyhow::Result<TreeSize> {
    fs::create_dir_all(folder)?;
    anyhow::ensure!(fs::read_dir(folder)?.next().is_none(), "{} is not empty", folder.display());
    let mut written = TreeSize::default();
    let mut rng = Rng::new(20_000);
    let pool = line_pool(&mut rng);
    let shares = shares(&mut rng, files);
    let all: u64 = shares.iter().sum();
    let mut into = PathBuf::new();
    for (index, share) in shares.iter().enumerate() {
        if index % FILES_PER_FOLDER == 0 {
            into = folder_of_group(folder, index / FILES_PER_FOLDER);
            written.folders += create_folders(&into)?;
        }
        let size = usize::try_from(share * bytes / all.max(1))?;
        let mut text = compose(&pool, &mut rng, size);
        if [files / 5, files / 2, files - 1].contains(&index) {
            text.extend(["// ", RARE_LITERAL, "\n"]);
        }
        if index % files.div_ceil(COMMON_FILES) == 0 {
            text.extend(["// ", COMMON_LITERAL, "(", &index.to_string(), ")\n"]);
        }
        let name = format!("{}_{index}.{}", rng.word(), EXTENSIONS[rng.below(EXTENSIONS.len())]);
        fs::write(into.join(name), &text)?;
        written.files += 1;
        written.bytes += text.len() as u64;
    }
    Ok(written)
}

/// Returns the lines from which files are composed.
fn line_pool(rng: &mut Rng) -> Vec<String> {
    (0..200_000).map(|_| line(rng)).collect()
}

/// Returns the relative size of each file: most are small, a few are a hundred times larger.
fn shares(rng: &mut Rng, files: usize) -> Vec<u64> {
    let mut share = || match rng.below(100) {
        0..60 => 20 + rng.below(200),
        60..90 => 200 + rng.below(800),
        90..99 => 1_000 + rng.below(4_000),
        _ => 5_000 + rng.below(25_000),
    };
    (0..files).map(|_| share() as u64).collect()
}

fn compose(pool: &[String], rng: &mut Rng, size: usize) -> String {
    let mut text = String::with_capacity(size + 128);
    let mut at = rng.below(pool.len());
    while text.len() < size {
        text.push_str(&pool[at]);
        text.push('\n');
        at = (at + 1) % pool.len();
    }
    text
}

/// Returns the folder of group `index`: packages of forty groups, with `src` and nested folders.
fn folder_of_group(folder: &Path, index: usize) -> PathBuf {
    let package = folder.join(format!("package_{:03}", index / 40));
    match index % 40 {
        0 => package,
        1 => package.join("src"),
        2..5 => package.join("tests"),
        part @ 5..20 => package.join("src").join(format!("part_{part}")),
        part => package.join("src").join(format!("part_{}", part % 5 + 5)).join(format!("deep_{part}")),
    }
}

fn create_folders(folder: &Path) -> anyhow::Result<usize> {
    let new = folder.ancestors().take_while(|above| !above.exists()).count();
    fs::create_dir_all(folder)?;
    Ok(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_has_the_requested_files_and_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let made = generate(&folder.path().join("tree"), 300, 3_000_000).unwrap();
        assert_eq!(made.files, 300);
        assert!((3_000_000..3_300_000).contains(&made.bytes), "{made:?}");
        assert!(made.folders > 20, "{made:?}");
    }

    #[test]
    fn trees_are_equal_and_a_folder_in_use_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let [a, b] = ["a", "b"].map(|name| generate(&folder.path().join(name), 40, 100_000).unwrap());
        assert_eq!(a, b);
        assert!(generate(&folder.path().join("a"), 1, 1).is_err());
    }
}
