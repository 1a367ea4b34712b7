//! When a run's tree shows the files as they were at one record.
//!
//! Changes of different files are committed together and applied one beside the other. In between, a reader of several files could
//! see half of a change, or a later change without an earlier one. A read therefore remembers a moment at which the tree was at a
//! record, and counts only if no change has begun to be applied since. A reader of one file needs none of this.

use std::collections::BTreeSet;

use parking_lot::Mutex;

/// The changes of one run that are being committed or applied.
#[derive(Debug, Default)]
pub struct TreeStates(Mutex<TreeState>);

#[derive(Debug, Default)]
struct TreeState {
    /// Number of changes that have begun to be applied.
    version: u64,
    /// Number of changes that are being applied.
    applying: usize,
    next_ticket: u64,
    /// Tickets of the changes that are being committed.
    committing: BTreeSet<u64>,
    /// The records of the changes that are committed and not applied yet.
    committed: BTreeSet<u64>,
    /// The newest record that is applied.
    newest: u64,
    /// A change with an earlier ticket that is still being committed may have a record before `newest`.
    horizon: u64,
}

/// A change on its way into the tree. Dropped once it is applied, or will not be.
#[derive(Debug)]
pub struct TreeChange<'a> {
    states: &'a TreeStates,
    ticket: u64,
    /// The last record of the change, and the first ticket that was given out after its commit.
    committed: Option<(u64, u64)>,
    is_applying: bool,
}

impl TreeStates {
    /// Begins a change that is about to be committed.
    pub fn begin(&self) -> TreeChange<'_> {
        let mut state = self.0.lock();
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.committing.insert(ticket);
        TreeChange { states: self, ticket, committed: None, is_applying: false }
    }

    /// Returns the version of the tree if it is at a record: no change is partially applied, and every applied one has all earlier
    /// ones before it.
    pub fn version_at_record(&self) -> Option<u64> {
        let state = self.0.lock();
        let is_complete = state.committed.first().is_none_or(|record| *record > state.newest)
            && state.committing.first().is_none_or(|ticket| *ticket >= state.horizon);
        (state.applying == 0 && is_complete).then_some(state.version)
    }

    /// Whether no change has begun to be applied since the tree had `version`.
    pub fn is_unchanged(&self, version: u64) -> bool {
        self.0.lock().version == version
    }
}

impl TreeChange<'_> {
    /// Notes that the change is committed. `record` is its last record.
    pub fn commit(&mut self, record: u64) {
        let mut state = self.states.0.lock();
        state.committing.remove(&self.ticket);
        state.committed.insert(record);
        self.committed = Some((record, state.next_ticket));
    }

    /// Notes that the tree changes from now on.
    pub fn begin_to_apply(&mut self) {
        if !std::mem::replace(&mut self.is_applying, true) {
            let mut state = self.states.0.lock();
            state.version += 1;
            state.applying += 1;
        }
    }
}

impl Drop for TreeChange<'_> {
    fn drop(&mut self) {
        let mut state = self.states.0.lock();
        state.committing.remove(&self.ticket);
        if let Some((record, horizon)) = self.committed {
            state.committed.remove(&record);
            if record > state.newest {
                (state.newest, state.horizon) = (record, horizon);
            }
        }
        state.applying -= usize::from(self.is_applying);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_at_a_record_unless_a_change_is_applied_in_part_or_out_of_order() {
        let states = TreeStates::default();
        let begun = states.version_at_record().unwrap();
        let (mut first, mut second) = (states.begin(), states.begin());
        // What is being committed changes nothing.
        assert_eq!(states.version_at_record(), Some(begun));
        second.commit(6);
        second.begin_to_apply();
        assert_eq!(states.version_at_record(), None);
        assert!(!states.is_unchanged(begun));
        drop(second);
        // The first change may have the record 5.
        assert_eq!(states.version_at_record(), None);
        first.commit(5);
        assert_eq!(states.version_at_record(), None);
        first.begin_to_apply();
        drop(first);
        let version = states.version_at_record().unwrap();
        // A later change can only have a later record.
        let mut third = states.begin();
        assert_eq!(states.version_at_record(), Some(version));
        third.commit(7);
        assert_eq!(states.version_at_record(), Some(version));
        assert!(states.is_unchanged(version));
        drop(third);
        let state = states.0.lock();
        assert!(state.committing.is_empty() && state.committed.is_empty() && state.applying == 0);
    }

    #[test]
    fn a_change_that_is_not_committed_leaves_nothing() {
        let states = TreeStates::default();
        let version = states.version_at_record();
        drop(states.begin());
        assert_eq!(states.version_at_record(), version);
    }
}
