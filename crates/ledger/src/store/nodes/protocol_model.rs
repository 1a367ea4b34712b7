//! A model of the ownership protocol, explored over all interleavings of a bounded size: one run, two nodes, one of which starts
//! again while its earlier process is only paused, and two calls that clients repeat at any node. Each step of a process is what one
//! statement or transaction of the ledger does. A process that takes no step is paused or killed. Heartbeats are not modelled: a run can be
//! taken from its owner at any time, as if all clocks were wrong.
//!
//! What is checked whenever a record is committed is that its call has seen exactly the records before it, and that it was not
//! recorded before, although nothing but the epoch prevents either; whenever a call is answered, that it is recorded. So no acknowledged change is lost, what was answered agrees with
//! the chain in the order of real time, each call has its effect once, and a paused process that wakes commits nothing stale.

use std::collections::{HashSet, VecDeque};

/// The nodes of the processes, by number: the last process is a restart of the first one.
const NODE_OF: [usize; 3] = [0, 1, 0];
const INCARNATION_OF: [u8; 3] = [1, 1, 2];
const NODES: usize = 2;
const PROCESSES: usize = NODE_OF.len();
const CALLS: usize = 2;
/// How often each call is sent to some node, and how often the run is taken.
const MAX_SENDS: u8 = 2;
const MAX_TAKES: u8 = 3;

/// A rule of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// A commit requires that its process owns the run.
    ChecksOwner,
    /// A commit requires that its epoch is that of the head.
    ChecksEpoch,
    /// The epoch grows when the run is taken.
    CountsEpochs,
    /// Taking, opening and giving back a run waits for the lock of its head.
    WaitsForCommits,
    /// A process that is in doubt about a commit reads its outcome before it continues.
    SettlesDoubt,
}

/// The protocol without some of its rules, to see that they are needed.
#[derive(Clone, Copy, Debug)]
struct Protocol {
    without: &'static [Rule],
}

impl Protocol {
    fn has(self, rule: Rule) -> bool {
        !self.without.contains(&rule)
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct State {
    owner: Option<usize>,
    epoch: u8,
    takes: u8,
    /// The calls of the records.
    chain: Vec<usize>,
    /// The transaction that has locked the head.
    locked: Option<Transaction>,
    /// The newest process of each node.
    newest: [u8; NODES],
    processes: [Process; PROCESSES],
    sends: [u8; CALLS],
}

/// A transaction that records a call, which was planned with a tree that has the first `tree` records.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Transaction {
    process: usize,
    call: usize,
    tree: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Process {
    /// The run, if the process has taken it.
    run: Run,
    work: Work,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Run {
    NotOpen,
    /// Taken, but the ledger has not been read yet.
    Taken {
        epoch: u8,
    },
    /// Open, with a tree that has the first `tree` records.
    Open {
        epoch: u8,
        tree: usize,
    },
}

/// What a process knows of its call in progress.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Work {
    None,
    /// Planned with a tree that has the first `tree` records.
    Planned {
        call: usize,
        epoch: u8,
        tree: usize,
    },
    /// Sent to the server, which has decided about it once there is an `outcome`.
    Sent {
        call: usize,
        epoch: u8,
        outcome: Option<bool>,
    },
    /// The connection was lost before the outcome was known.
    InDoubt,
}

#[derive(Debug)]
struct Violation(String);

impl State {
    fn first() -> Self {
        Self {
            owner: None,
            epoch: 0,
            takes: 0,
            chain: Vec::new(),
            locked: None,
            newest: [1; NODES],
            processes: [Process { run: Run::NotOpen, work: Work::None }; PROCESSES],
            sends: [0; CALLS],
        }
    }

    fn with(&self, change: impl FnOnce(&mut Self)) -> Self {
        let mut next = self.clone();
        change(&mut next);
        next
    }

    /// Returns every state that one step leads to.
    fn next(&self, protocol: Protocol) -> Result<Vec<Self>, Violation> {
        let mut next = Vec::new();
        if self.newest[0] == 1 {
            next.push(self.with(|state| state.newest[0] = 2));
        }
        if self.locked.is_some() {
            next.push(self.decide(true)?);
            next.push(self.decide(false)?);
        }
        for process in 0..PROCESSES {
            if INCARNATION_OF[process] > self.newest[NODE_OF[process]] {
                // It has not started.
                continue;
            }
            if self.locked.is_none() || !protocol.has(Rule::WaitsForCommits) {
                next.extend(self.take_or_open(process, protocol));
                next.extend(self.give_back(process));
            }
            next.extend(self.notice(process));
            self.work(process, protocol, &mut next)?;
        }
        Ok(next)
    }

    /// The server commits or rolls back the transaction that has locked the head, whether or not its process still waits.
    fn decide(&self, is_committed: bool) -> Result<Self, Violation> {
        let Some(Transaction { process, call, tree }) = self.locked else { return Ok(self.clone()) };
        let mut next = self.clone();
        next.locked = None;
        if is_committed {
            if tree != self.chain.len() || self.chain.contains(&call) {
                return Err(Violation(format!("process {process} commits call {call} with {tree} records: {self:?}")));
            }
            next.chain.push(call);
        }
        if let Work::Sent { outcome, .. } = &mut next.processes[process].work {
            *outcome = Some(is_committed);
        }
        Ok(next)
    }

    fn take_or_open(&self, process: usize, protocol: Protocol) -> Option<Self> {
        match self.processes[process].run {
            Run::NotOpen if self.owner == Some(process) => {
                let epoch = self.epoch;
                Some(self.with(|state| state.processes[process].run = Run::Taken { epoch }))
            }
            Run::NotOpen => {
                let is_newest = INCARNATION_OF[process] == self.newest[NODE_OF[process]];
                if !is_newest || self.takes == MAX_TAKES {
                    return None;
                }
                let epoch = self.epoch + u8::from(protocol.has(Rule::CountsEpochs));
                Some(self.with(|state| {
                    (state.owner, state.epoch, state.takes) = (Some(process), epoch, self.takes + 1);
                    state.processes[process].run = Run::Taken { epoch };
                }))
            }
            Run::Taken { epoch } => {
                let open = Run::Open { epoch, tree: self.chain.len() };
                Some(self.with(|state| state.processes[process].run = open))
            }
            Run::Open { .. } => None,
        }
    }

    fn give_back(&self, process: usize) -> Option<Self> {
        let Process { run: Run::Open { epoch, .. }, work: Work::None } = self.processes[process] else { return None };
        Some(self.with(|state| {
            if (state.owner, state.epoch) == (Some(process), epoch) {
                state.owner = None;
            }
            state.processes[process].run = Run::NotOpen;
        }))
    }

    /// Another call of the process was refused, because the run has moved.
    fn notice(&self, process: usize) -> Option<Self> {
        let (Run::Open { epoch, .. } | Run::Taken { epoch }) = self.processes[process].run else { return None };
        let is_lost = (self.owner, self.epoch) != (Some(process), epoch);
        is_lost.then(|| self.with(|state| state.processes[process].run = Run::NotOpen))
    }

    fn work(&self, process: usize, protocol: Protocol, next: &mut Vec<Self>) -> Result<(), Violation> {
        let Process { run, work } = self.processes[process];
        let working = |work: Work| self.with(|state| state.processes[process].work = work);
        match work {
            Work::None => self.receive(process, next),
            Work::Planned { call, epoch, tree } => {
                if self.locked.is_none() {
                    next.push(self.lock(protocol, epoch, Transaction { process, call, tree }));
                }
            }
            Work::Sent { outcome: None, .. } => next.push(working(Work::InDoubt)),
            Work::Sent { outcome: Some(false), .. } => next.extend([working(Work::None), working(Work::InDoubt)]),
            Work::Sent { call, epoch, outcome: Some(true) } => {
                next.push(working(Work::InDoubt));
                if !self.chain.contains(&call) {
                    return Err(Violation(format!("call {call} is answered and not recorded: {self:?}")));
                }
                // The change is applied to the tree that it was planned with.
                let mut done = working(Work::None);
                match &mut done.processes[process].run {
                    Run::Open { epoch: open, tree } if *open == epoch => *tree += 1,
                    _ => {}
                }
                next.push(done);
            }
            Work::InDoubt if !protocol.has(Rule::SettlesDoubt) => next.push(working(Work::None)),
            Work::InDoubt if self.locked.is_none() || !protocol.has(Rule::WaitsForCommits) => {
                let mut settled = working(Work::None);
                if let Run::Open { epoch, .. } = run {
                    settled.processes[process].run = Run::Open { epoch, tree: self.chain.len() };
                }
                next.push(settled);
            }
            Work::InDoubt => {}
        }
        Ok(())
    }

    /// A call arrives. One that is recorded already is answered at once, which changes nothing.
    fn receive(&self, process: usize, next: &mut Vec<Self>) {
        let Run::Open { epoch, tree } = self.processes[process].run else { return };
        for call in (0..CALLS).filter(|call| self.sends[*call] < MAX_SENDS && !self.chain.contains(call)) {
            next.push(self.with(|state| {
                state.sends[call] += 1;
                state.processes[process].work = Work::Planned { call, epoch, tree };
            }));
        }
    }

    /// Locks the head and checks it. A process that does not own the run under its epoch closes it.
    fn lock(&self, protocol: Protocol, epoch: u8, transaction: Transaction) -> Self {
        let Transaction { process, call, .. } = transaction;
        let is_owner = !protocol.has(Rule::ChecksOwner) || self.owner == Some(process);
        let is_epoch = !protocol.has(Rule::ChecksEpoch) || self.epoch == epoch;
        self.with(|state| {
            let own = &mut state.processes[process];
            if is_owner && is_epoch {
                own.work = Work::Sent { call, epoch, outcome: None };
                state.locked = Some(transaction);
                return;
            }
            own.work = Work::None;
            match own.run {
                Run::Open { epoch: open, .. } | Run::Taken { epoch: open } if open <= epoch => {
                    own.run = Run::NotOpen;
                }
                _ => {}
            }
        })
    }
}

/// Explores every state. Returns their number, and the lengths of the longest chains.
fn explore(protocol: Protocol) -> Result<(usize, usize), Violation> {
    let (mut known, mut open) = (HashSet::from([State::first()]), VecDeque::from([State::first()]));
    let mut longest = 0;
    while let Some(state) = open.pop_front() {
        longest = longest.max(state.chain.len());
        for next in state.next(protocol)? {
            if known.insert(next.clone()) {
                open.push_back(next);
            }
        }
    }
    Ok((known.len(), longest))
}

#[test]
fn no_interleaving_loses_doubles_or_misorders_a_record() {
    let explored = explore(Protocol { without: &[] });
    let (states, longest) = explored.unwrap_or_else(|violation| panic!("{}", violation.0));
    assert!(states > 50_000 && longest == CALLS, "{states} states, chains of {longest} records");
}

#[test]
fn without_any_one_of_its_rules_the_protocol_is_wrong() {
    // Epochs that grow belong to one owner each, so that one of the two checks finds every stale commit. After the database has lost
    // the newest commits, two processes may have taken the run under one epoch.
    for without in [
        &[Rule::ChecksOwner, Rule::ChecksEpoch][..],
        &[Rule::ChecksEpoch],
        &[Rule::CountsEpochs],
        &[Rule::WaitsForCommits],
        &[Rule::SettlesDoubt],
    ] {
        assert!(explore(Protocol { without }).is_err(), "the model does not need {without:?}");
    }
}
