//! The files of a sandbox that are not those of the run, as the record of a command names them.

use std::collections::BTreeSet;

use shim::{ChangeKind, LeftEntry, ScanReport};

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
    /// Of looks at a folder: before a command, and of what came of it.
    pub(crate) fn of(reports: &[&ScanReport]) -> Self {
        let changes = || reports.iter().flat_map(|report| &report.changes);
        let (new, known): (Vec<_>, Vec<_>) = changes().partition(|change| change.change == ChangeKind::Added);
        // What no run can have is not the run's either. An empty folder is no difference.
        let left = || reports.iter().flat_map(|report| &report.left).filter(|entry| !is_empty_folder(entry));
        let known: BTreeSet<&str> =
            known.iter().map(|change| &*change.path).chain(left().map(|entry| &*entry.path)).collect();
        let foreign = reports.iter().fold(0_u64, |sum, report| sum.saturating_add(report.foreign_count));
        let unnamed = foreign.saturating_sub(left().count() as u64);
        let mut paths: Vec<String> = known.iter().map(|path| (*path).to_owned()).collect();
        let bytes: usize =
            paths.iter().map(String::len).sum::<usize>() + new.iter().map(|new| new.path.len()).sum::<usize>();
        let new: BTreeSet<String> = if bytes <= MAX_BYTES {
            new.iter().map(|change| change.path.clone()).collect()
        } else {
            let folder = |path: &str| match path.rsplit_once('/') {
                Some((folder, _)) => format!("{folder}/"),
                None => path.to_owned(),
            };
            new.iter().map(|change| folder(&change.path)).collect()
        };
        paths.extend(new.into_iter().filter(|path| !known.contains(path.as_str())));
        let count = unnamed.saturating_add(paths.len() as u64);
        let mut left = MAX_BYTES;
        let fits = |path: &String| left.checked_sub(path.len()).inspect(|rest| left = *rest).is_some();
        Self { paths: paths.into_iter().take_while(fits).collect(), count }
    }

    /// Of a folder that could not be looked at: it is not known what differs.
    pub(crate) fn unknown() -> Self {
        Self { paths: Vec::new(), count: 1 }
    }
}

/// Whether something is left because it is an empty folder, which a run cannot have.
pub(crate) fn is_empty_folder(left: &LeftEntry) -> bool {
    left.path.ends_with('/')
}

#[cfg(test)]
mod tests {
    use shim::PathChange;

    use super::*;

    fn of(changes: Vec<PathChange>, left: &[&str], foreign_count: u64) -> Differing {
        let left = left.iter().map(|path| LeftEntry { path: (*path).to_owned(), why: String::new() }).collect();
        Differing::of(&[&ScanReport { changes, left, foreign_count, ..ScanReport::default() }])
    }

    fn change(path: &str, change: ChangeKind) -> PathChange {
        PathChange { path: path.to_owned(), change, size: 0, changed_ns: 0 }
    }

    #[test]
    fn what_the_run_has_is_named_first_and_many_new_files_by_their_folder() {
        let few = vec![change("a", ChangeKind::Added), change("b", ChangeKind::Deleted)];
        assert_eq!(of(few, &[], 0), Differing { paths: vec!["b".to_owned(), "a".to_owned()], count: 2 });
        let mut many: Vec<_> =
            (0..5000).map(|number| change(&format!("out/{}/{number}.o", number % 2), ChangeKind::Added)).collect();
        many.push(change("src/z", ChangeKind::Modified));
        let differing = of(many, &[], 0);
        assert_eq!((differing.paths.join(" ").as_str(), differing.count), ("src/z out/0/ out/1/", 3));
        let changed: Vec<_> =
            (0..5000).map(|number| change(&format!("src/{number}.rs"), ChangeKind::Modified)).collect();
        let differing = of(changed, &[], 0);
        assert!(differing.count == 5000 && (1000..5000).contains(&differing.paths.len()), "{}", differing.paths.len());
    }

    #[test]
    fn what_no_run_can_have_differs_too_and_an_empty_folder_does_not() {
        let differing = of(vec![change("d/c", ChangeKind::Deleted)], &["d", "pipe", "empty/"], 2);
        assert_eq!((differing.paths.join(" ").as_str(), differing.count), ("d d/c pipe", 3));
        assert_eq!(of(Vec::new(), &["empty/"], 0), Differing::default());
        // More than a scan names.
        assert_eq!((of(Vec::new(), &["pipe"], 7).count, Differing::unknown().count), (7, 1));
    }
}
