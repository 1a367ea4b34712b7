//! A run's use of its budgets, and whether its tree may lack recorded changes.

use std::sync::Arc;

use model::{Rules, Usage};
use parking_lot::{Mutex, MutexGuard};

/// What a call is about to use of its run's budgets. Released on drop.
#[derive(Debug)]
pub struct UsageReservation {
    state: Arc<Mutex<Account>>,
    size: Usage,
}

/// The state that the mutations of one run share.
#[derive(Debug)]
pub struct Accounting {
    state: Arc<Mutex<Account>>,
    /// Held from reading the usage to reserving more, so that concurrent calls do not exceed a budget of the run together.
    judging: Mutex<()>,
}

#[derive(Debug)]
struct Account {
    /// Of recorded calls.
    usage: Usage,
    /// Of calls that are judged and not recorded yet.
    reserved: Usage,
    is_dirty: bool,
    /// Staged files of calls with an uncertain commit, which the journal may name.
    uncertain_files: Vec<String>,
}

impl Accounting {
    /// Creates the accounting of a run that has used `usage`. It is dirty if the tree may lack journal steps of the ledger.
    pub fn new(usage: Usage, is_dirty: bool) -> Self {
        let (reserved, uncertain_files) = (Usage::default(), Vec::new());
        let state = Account { usage, reserved, is_dirty, uncertain_files };
        Self { state: Arc::new(Mutex::new(state)), judging: Mutex::new(()) }
    }

    /// Makes other calls wait until this one has reserved what it uses, if `rules` have a budget of the run.
    pub fn judge_alone(&self, rules: &Rules) -> Option<MutexGuard<'_, ()>> {
        rules.policy().run_budget.is_some().then(|| self.judging.lock())
    }

    /// Returns the usage, with the reservations of calls in progress.
    pub fn usage(&self) -> Usage {
        let state = self.state.lock();
        let mut usage = state.usage.clone();
        usage.add(&state.reserved);
        usage
    }

    /// Reserves `size`.
    pub fn reserve(&self, size: Usage) -> UsageReservation {
        self.state.lock().reserved.add(&size);
        UsageReservation { state: Arc::clone(&self.state), size }
    }

    /// Whether the ledger may have journal steps that the tree lacks.
    pub fn is_dirty(&self) -> bool {
        self.state.lock().is_dirty
    }

    /// Makes the next call reconcile the run.
    pub fn set_dirty(&self) {
        self.state.lock().is_dirty = true;
    }

    /// Makes the next call reconcile the run, since it is uncertain whether a commit took place. The journal may name the
    /// staged `files`.
    pub fn set_uncertain(&self, files: Vec<String>) {
        let mut state = self.state.lock();
        state.is_dirty = true;
        state.uncertain_files.extend(files);
    }

    /// Takes the staged files of uncertain commits. The caller holds the whole run and knows what was committed.
    pub fn take_uncertain_files(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().uncertain_files)
    }

    /// Ends a reconciliation: stores the usage that the ledger has.
    pub fn set_reconciled(&self, usage: Usage) {
        let mut state = self.state.lock();
        (state.usage, state.is_dirty) = (usage, false);
    }
}

impl UsageReservation {
    /// Counts what is reserved: the call is recorded.
    pub fn settle(mut self) {
        let size = std::mem::take(&mut self.size);
        let mut state = self.state.lock();
        state.usage.add(&size);
        state.reserved.subtract(&size);
    }
}

impl Drop for UsageReservation {
    fn drop(&mut self) {
        self.state.lock().reserved.subtract(&self.size);
    }
}
