//! The files of a sandbox that are not those of the run, as the record of a command names them.

use std::collections::BTreeSet;

use shim::{ChangeKind, PathChange};

/// The most bytes of the paths that are named.
const MAX_BYTES: usize = 24 << 10;

/// What differs from the run before a command. The service leaves out what a run never takes, such as build output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Differing {
    /// The first paths, those that the run has before others. Where there are many new ones, their folder, with a slash at its end.
    pub(crate) paths: Vec<String>,
    /// How many there are.
    pub(crate) count: u64,
}

impl Differing {
    /// Of a look at a folder before a command.
    pub(crate) fn of(changes: &[PathChange]) -> Self {
        let is_new = |change: &&PathChange| change.change == ChangeKind::Added;
        let (new, known): (Vec<_>, Vec<_>) = changes.iter().partition(is_new);
        let mut paths: Vec<String> = known.iter().map(|change| change.path.clone()).collect();
        let bytes: usize = changes.iter().map(|change| change.path.len()).sum();
        if bytes <= MAX_BYTES {
            paths.extend(new.iter().map(|change| change.path.clone()));
        } else {
            let folder = |path: &str| match path.rsplit_once('/') {
                Some((folder, _)) => format!("{folder}/"),
                None => path.to_owned(),
            };
            paths.extend(new.iter().map(|change| folder(&change.path)).collect::<BTreeSet<_>>());
        }
        let count = paths.len() as u64;
        let mut left = MAX_BYTES;
        let fits = |path: &String| left.checked_sub(path.len()).inspect(|rest| left = *rest).is_some();
        Self { paths: paths.into_iter().take_while(fits).collect(), count }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_run_has_is_named_first_and_many_new_files_by_their_folder() {
        let change = |path: &str, change| PathChange { path: path.to_owned(), change, size: 0, changed_ns: 0 };
        let few = [change("a", ChangeKind::Added), change("b", ChangeKind::Deleted)];
        assert_eq!(Differing::of(&few), Differing { paths: vec!["b".to_owned(), "a".to_owned()], count: 2 });
        let mut many: Vec<_> =
            (0..5000).map(|number| change(&format!("out/{}/{number}.o", number % 2), ChangeKind::Added)).collect();
        many.push(change("src/z", ChangeKind::Modified));
        let differing = Differing::of(&many);
        assert_eq!((differing.paths.join(" ").as_str(), differing.count), ("src/z out/0/ out/1/", 3));
        let changed: Vec<_> =
            (0..5000).map(|number| change(&format!("src/{number}.rs"), ChangeKind::Modified)).collect();
        let differing = Differing::of(&changed);
        assert!(differing.count == 5000 && (1000..5000).contains(&differing.paths.len()), "{}", differing.paths.len());
    }
}
