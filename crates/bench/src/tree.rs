//! A synthetic source tree, in the shape of a real one: many small files, few large ones, folders of about eight files.

use std::fs;
use std::path::{Path, PathBuf};

use crate::text::{Numbers, line};

/// A literal that stands in three files of a tree.
pub(crate) const RARE: &str = "quill_of_the_northern_heron";

/// What was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Made {
    /// Files.
    pub(crate) files: usize,
    /// Folders below the tree's own.
    pub(crate) folders: usize,
    /// Bytes of all files.
    pub(crate) bytes: u64,
}

/// Endings of names, as often as in real trees.
const ENDINGS: [&str; 8] = ["rs", "rs", "rs", "rs", "h", "c", "md", "toml"];
const FILES_IN_A_FOLDER: usize = 8;

/// Writes `files` files of together about `bytes` bytes into `folder`, which has to be empty or missing.
///
/// # Errors
///
/// Where the folder holds something, or cannot be written.
pub(crate) fn make(folder: &Path, files: usize, bytes: u64) -> anyhow::Result<Made> {
    fs::create_dir_all(folder)?;
    anyhow::ensure!(fs::read_dir(folder)?.next().is_none(), "{} is not empty", folder.display());
    let mut made = Made::default();
    let mut numbers = Numbers::new(20_000);
    let stock = stock(&mut numbers);
    let shares = shares(&mut numbers, files);
    let all: u64 = shares.iter().sum();
    let mut into = PathBuf::new();
    for (index, share) in shares.iter().enumerate() {
        if index % FILES_IN_A_FOLDER == 0 {
            into = place(folder, index / FILES_IN_A_FOLDER);
            made.folders += new_folders(&into)?;
        }
        let size = usize::try_from(share * bytes / all.max(1))?;
        let mut text = cut(&stock, &mut numbers, size);
        if [files / 5, files / 2, files - 1].contains(&index) {
            text.extend(["// ", RARE, "\n"]);
        }
        let name = format!("{}_{index}.{}", numbers.word(), ENDINGS[numbers.below(ENDINGS.len())]);
        fs::write(into.join(name), &text)?;
        made.files += 1;
        made.bytes += text.len() as u64;
    }
    Ok(made)
}

/// Much text to take pieces from, each piece beginning at a line.
fn stock(numbers: &mut Numbers) -> Vec<String> {
    (0..200_000).map(|_| line(numbers)).collect()
}

/// The share of each file: half of the files small, a few a hundred times as large.
fn shares(numbers: &mut Numbers, files: usize) -> Vec<u64> {
    let mut share = || match numbers.below(100) {
        0..60 => 20 + numbers.below(200),
        60..90 => 200 + numbers.below(800),
        90..99 => 1_000 + numbers.below(4_000),
        _ => 5_000 + numbers.below(25_000),
    };
    (0..files).map(|_| share() as u64).collect()
}

fn cut(stock: &[String], numbers: &mut Numbers, size: usize) -> String {
    let mut text = String::with_capacity(size + 128);
    let mut at = numbers.below(stock.len());
    while text.len() < size {
        text.push_str(&stock[at]);
        text.push('\n');
        at = (at + 1) % stock.len();
    }
    text
}

/// The folder of group `index`: packages of about forty groups, with `src` and folders below it.
fn place(folder: &Path, index: usize) -> PathBuf {
    let package = folder.join(format!("package_{:03}", index / 40));
    match index % 40 {
        0 => package,
        1 => package.join("src"),
        2..5 => package.join("tests"),
        part @ 5..20 => package.join("src").join(format!("part_{part}")),
        part => package.join("src").join(format!("part_{}", part % 5 + 5)).join(format!("deep_{part}")),
    }
}

fn new_folders(folder: &Path) -> anyhow::Result<usize> {
    let new = folder.ancestors().take_while(|above| !above.exists()).count();
    fs::create_dir_all(folder)?;
    Ok(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_has_the_files_and_the_bytes_that_were_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let made = make(&folder.path().join("tree"), 300, 3_000_000).unwrap();
        assert_eq!(made.files, 300);
        assert!((3_000_000..3_300_000).contains(&made.bytes), "{made:?}");
        assert!(made.folders > 20, "{made:?}");
    }

    #[test]
    fn two_trees_are_the_same_and_a_folder_in_use_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let [a, b] = ["a", "b"].map(|name| make(&folder.path().join(name), 40, 100_000).unwrap());
        assert_eq!(a, b);
        assert!(make(&folder.path().join("a"), 1, 1).is_err());
    }
}
