//! The versions of all files at each record of a chain.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// The hash of each version of each file, with the record that made it. `None` means no file.
pub(super) struct Files {
    versions: BTreeMap<String, Vec<(u64, Option<String>)>>,
}

impl Files {
    /// Applies the changes of a chain to the files at the start. Returns the contradictions between records, too.
    pub(super) fn replay(base: &BTreeMap<String, String>, records: &[Value]) -> (Self, Vec<String>) {
        let start = base.iter().map(|(path, hash)| (path.clone(), vec![(0, Some(hash.clone()))]));
        let mut files = Self { versions: start.collect() };
        let mut contradictions = Vec::new();
        for record in records.iter().filter(|record| record["mutates"] == true && record["outcome"] == "ok") {
            for file in record["files"].as_array().into_iter().flatten() {
                let [path, old, new] = ["path", "oldSha256", "newSha256"].map(|member| file[member].as_str());
                let versions = files.versions.entry(path.unwrap_or_default().to_owned()).or_default();
                let current = versions.last().and_then(|(_, version)| version.as_deref());
                if current != old {
                    contradictions.push(format!("the version before this record is {current:?}: {record}"));
                }
                versions.push((super::seq_of(record), new.map(str::to_owned)));
            }
        }
        (files, contradictions)
    }

    /// Returns the files after the last record.
    pub(super) fn last(&self) -> BTreeMap<String, String> {
        let last = |(path, versions): (&String, &Vec<(u64, Option<String>)>)| {
            Some((path.clone(), versions.last()?.1.clone()?))
        };
        self.versions.iter().filter_map(last).collect()
    }

    /// Returns the versions of a file that are current at one of the records `from` to `to`, and since which of these.
    pub(super) fn versions<'f>(
        &'f self,
        path: &str,
        from: u64,
        to: u64,
    ) -> impl Iterator<Item = (u64, Option<&'f str>)> + use<'f> {
        let versions = self.versions.get(path).map_or(&[][..], Vec::as_slice);
        let begun = versions.partition_point(|(seq, _)| *seq <= from);
        let at_first = begun.checked_sub(1).and_then(|at| versions[at].1.as_deref());
        let later = versions[begun..].iter().take_while(move |(seq, _)| *seq <= to);
        std::iter::once((from, at_first)).chain(later.map(|(seq, version)| (*seq, version.as_deref())))
    }

    /// Returns the first of the records `from` to `to` at which a folder has these names.
    pub(super) fn position_of_names(&self, folder: &str, names: &BTreeSet<String>, from: u64, to: u64) -> Option<u64> {
        let prefix = format!("{folder}/");
        let in_folder = self.versions.keys().filter(|path| path.starts_with(&prefix));
        let mut changes: Vec<_> = in_folder
            .flat_map(|path| self.versions(path, from, to).map(move |(seq, version)| (seq, path, version.is_some())))
            .collect();
        changes.sort_unstable();
        let mut present = BTreeSet::new();
        for (at, (seq, path, is_present)) in changes.iter().enumerate() {
            let name = path[prefix.len()..].to_owned();
            if *is_present {
                present.insert(name)
            } else {
                present.remove(&name)
            };
            let is_last_of_record = changes.get(at + 1).is_none_or(|next| next.0 != *seq);
            if is_last_of_record && present == *names {
                return Some(*seq);
            }
        }
        None
    }
}
