//! The nodes that write to one database, and which of them owns each run.
//!
//! A run is owned under an *epoch*, which grows whenever its owner changes. Each append names the epoch under which its run is owned,
//! and the row of the run's head, which every append locks, accepts no other: a node that has lost a run without noticing cannot
//! commit to it. That does not depend on any clock. Heartbeats, by the clock of the database, only decide when another node may take
//! the run of a node that does not respond.
//!
//! A ledger that has not [joined](NodeLog::join) is the only process that writes to its database. Runs have no owner there, and
//! epochs are neither needed nor checked.

#[cfg(test)]
mod protocol_model;

use std::ops::RangeInclusive;
use std::time::Duration;

use async_trait::async_trait;
use model::RunId;

use super::Store;
use crate::backend::Backend;
use crate::backend::node_sql::{self, CURRENT_EPOCHS, GIVE_BACK, GIVE_BACK_ROLE, INCARNATION, OPEN_FILES, Ownership};
use crate::node::{Epoch, Node, NodeIdentity, Role, RunOwner, StoredNode, Taken, TakenRole};
use crate::statement::{Param, Statement, to_count, to_int};
use crate::{Fence, INSTANCE, LedgerError, Result};

/// Maximum number of attempts to take something whose owner changes meanwhile.
const MAX_ATTEMPTS: usize = 5;

/// How long a node is listed after its heartbeat has expired, in milliseconds. Its row stays: a process that has been paused for longer
/// must find that a newer one has its name, by the number of processes that have had it.
const LISTED_MS: i64 = 24 * 60 * 60 * 1000;

/// The part of the ledger that knows nodes and owners. Every method is one transaction unless its documentation says otherwise.
///
/// Before [`join`](Self::join) has succeeded, the methods that need a node fail with `Internal`.
#[async_trait]
pub trait NodeLog: Send + Sync {
    /// Makes this process a node, whose heartbeat is valid for `lease`. Other nodes of the same `instance` may write to the database
    /// at the same time. Like [`Ledger::take_over`](crate::Ledger::take_over), it replaces the instance `known` by `instance`, unless
    /// they are equal, and returns `None` if the present one is neither: a single process that was using the database cannot commit
    /// any more. Returns the new process of the node. Earlier ones of the same name can still commit to the runs that they own, until
    /// these are taken from them, but take no more runs.
    ///
    /// From then on, every append must name the epoch of its run ([`Entry::epoch`](crate::Entry::epoch)), or fails with
    /// [`RunMoved`](crate::LedgerError::RunMoved). What else changes the tree's state of a run in the database requires that this
    /// process owns the run: [`set_needs_repair`](crate::Ledger::set_needs_repair) and
    /// [`set_disk_usage`](crate::Ledger::set_disk_usage) fail in the same way, and [`prune`](crate::Ledger::prune) leaves the steps
    /// of other runs in the journal. Runs are created as runs of this process, under [`Epoch::FIRST`].
    ///
    /// # Errors
    ///
    /// `Internal` if this process has joined already.
    async fn join(
        &self,
        identity: &NodeIdentity,
        known: Option<&str>,
        instance: &str,
        lease: Duration,
    ) -> Result<Option<Node>>;
    /// Returns the node that this process is, if it has joined. No transaction.
    fn node(&self) -> Option<&Node>;
    /// Makes this process count as alive for `lease` from now on, and if its heartbeat had expired, also the nodes whose heartbeat
    /// expired with it: the database was away for them too. Not delayed by other methods, however many wait. Returns false, and
    /// changes nothing, if a newer process has joined under the name of this node: this one must stop.
    async fn heartbeat(&self, lease: Duration) -> Result<bool>;
    /// Ends the heartbeat of this process, so that other nodes may take its runs and roles at once. To be called after its last
    /// commit.
    async fn leave(&self) -> Result<()>;
    /// Returns the nodes by name, also those that are not alive, until a day after their end if they own no run. Reads the heads of
    /// all runs.
    async fn nodes(&self) -> Result<Vec<StoredNode>>;
    /// Returns the owner of a run, alive or not; `None` if it has none.
    ///
    /// # Errors
    ///
    /// `NoSuchRun`.
    async fn owner(&self, run: &RunId) -> Result<Option<RunOwner>>;
    /// Makes this process the owner of a run, unless it is, or another node is and is alive. The owner's earlier commits, in doubt or
    /// not, are decided and visible when this returns `Owned` with a new epoch; those that have not locked the head of the run fail
    /// with [`RunMoved`](crate::LedgerError::RunMoved). Several transactions; only reads if the owner does not change.
    ///
    /// # Errors
    ///
    /// `NoSuchRun`; `Fenced` if a newer process has joined under the name of this node; `Unavailable` while a commit of the run is in
    /// flight, or the heartbeat of this process has expired.
    async fn take_run(&self, run: &RunId) -> Result<Taken>;
    /// Returns the epochs of a run since which nobody can have changed its files: a folder that had them under one of these still has
    /// them. The last one is that of now, 0 if no node has owned the run. If it is the only one, its owner may have opened the files.
    /// No transaction. Also before [`join`](Self::join).
    ///
    /// # Errors
    ///
    /// `NoSuchRun`.
    async fn current_epochs(&self, run: &RunId) -> Result<RangeInclusive<u64>>;
    /// Notes that this process opens the files of a run, and may change them from now on. They are noted as not opened when a run is
    /// [taken](Self::take_run), but not when it is created.
    ///
    /// # Errors
    ///
    /// `RunMoved` if this process does not own the run under `epoch` any more.
    async fn open_files(&self, run: &RunId, epoch: Epoch) -> Result<()>;
    /// Leaves runs without an owner, if this process still owns them under these epochs. Its later commits to them fail. One
    /// transaction for each run.
    async fn give_back(&self, runs: &[(RunId, Epoch)]) -> Result<()>;
    /// Leaves all runs of this process without an owner, except `kept`. Its later commits to them fail.
    async fn give_back_except(&self, kept: &[RunId]) -> Result<()>;
    /// Gives a role to this process, unless it has it, or another node has it and is alive. Roles only save work: what is done under
    /// one is safe if two nodes do it. Several transactions; only reads if the holder does not change.
    ///
    /// # Errors
    ///
    /// `Fenced` if a newer process has joined under the name of this node.
    async fn take_role(&self, role: Role) -> Result<TakenRole>;
    /// Leaves a role without a holder, if this process still has it under this epoch.
    async fn give_back_role(&self, role: Role, epoch: Epoch) -> Result<()>;
}

impl<B: Backend> Store<B> {
    /// Returns the node that this process is.
    fn joined(&self) -> Result<&Node> {
        self.0.node().ok_or_else(|| LedgerError::Internal("this process has not joined as a node".into()))
    }

    /// Stores this process as the next one of its node.
    async fn register(&self, identity: &NodeIdentity, lease: Duration) -> Result<Node> {
        let NodeIdentity { node_id, url } = identity;
        for _ in 0..MAX_ATTEMPTS {
            let before = self.one(INCARNATION, vec![node_id.as_str().into()]).await?.unwrap_or(0);
            let params = [
                node_id.as_str().into(),
                Param::Int(before + 1),
                url.as_str().into(),
                Param::Int(before),
                Param::Int(millis(lease)),
            ];
            if self.0.transact(None, vec![Statement::new(B::NODE_SQL.register, params)]).await? > 0 {
                return Ok(Node { node_id: node_id.clone(), incarnation: to_count(before + 1) });
            }
        }
        Err(contended("the name of the node"))
    }

    /// Fails if a newer process has joined under the name of `node`.
    async fn check_newest(&self, node: &Node) -> Result<()> {
        match self.one(INCARNATION, vec![node.node_id.as_str().into()]).await? {
            Some(newest) if to_count(newest) == node.incarnation => Ok(()),
            _ => Err(LedgerError::Fenced(Fence::Superseded)),
        }
    }

    async fn ownership(&self, run: &RunId) -> Result<Ownership> {
        let found = self.one(B::NODE_SQL.owner, vec![run.as_str().into()]).await?;
        found.ok_or(LedgerError::NoSuchRun)
    }
}

#[async_trait]
impl<B: Backend> NodeLog for Store<B> {
    async fn join(
        &self,
        identity: &NodeIdentity,
        known: Option<&str>,
        instance: &str,
        lease: Duration,
    ) -> Result<Option<Node>> {
        if self.0.node().is_some() {
            return Err(LedgerError::Internal("this process has joined already".into()));
        }
        let params = [INSTANCE.into(), instance.into(), known.into()];
        if self.0.transact_alone(vec![Statement::new(node_sql::SET_INSTANCE, params)]).await? == 0 {
            return Ok(None);
        }
        // If a single process takes over before the node is registered, that fails.
        self.0.fence(instance);
        let node = self.register(identity, lease).await?;
        self.0.set_node(node.clone());
        Ok(Some(node))
    }

    fn node(&self) -> Option<&Node> {
        self.0.node()
    }

    async fn heartbeat(&self, lease: Duration) -> Result<bool> {
        let node = self.joined()?;
        let params = [node.node_id.as_str().into(), node.incarnation.into(), Param::Int(millis(lease))];
        Ok(self.0.transact_apart(Statement::new(B::NODE_SQL.heartbeat, params)).await? > 0)
    }

    async fn leave(&self) -> Result<()> {
        let node = self.joined()?;
        let params = [node.node_id.as_str().into(), node.incarnation.into()];
        self.0.transact(None, vec![Statement::new(B::NODE_SQL.leave, params)]).await.map(drop)
    }

    async fn nodes(&self) -> Result<Vec<StoredNode>> {
        self.all(B::NODE_SQL.nodes, vec![Param::Int(-LISTED_MS)]).await
    }

    async fn owner(&self, run: &RunId) -> Result<Option<RunOwner>> {
        Ok(self.ownership(run).await?.owner())
    }

    async fn take_run(&self, run: &RunId) -> Result<Taken> {
        let node = self.joined()?;
        for _ in 0..MAX_ATTEMPTS {
            let found = self.ownership(run).await?;
            let epoch = found.epoch;
            match found.owner() {
                Some(owner) if owner.node == *node => return Ok(Taken::Owned(epoch)),
                Some(owner) if owner.is_alive() => return Ok(Taken::OwnedBy(owner)),
                _ => {}
            }
            let take = Statement::new(B::NODE_SQL.take_run, taking(run.as_str(), node, epoch));
            if self.0.transact(Some(run.clone()), vec![take]).await? == 0 {
                // The owner has changed meanwhile, or this process may take nothing any more.
                self.check_newest(node).await?;
            }
        }
        Err(contended("the run"))
    }

    async fn current_epochs(&self, run: &RunId) -> Result<RangeInclusive<u64>> {
        self.one(CURRENT_EPOCHS, vec![run.as_str().into()]).await?.ok_or(LedgerError::NoSuchRun)
    }

    async fn open_files(&self, run: &RunId, epoch: Epoch) -> Result<()> {
        let open = Statement::new(OPEN_FILES, taking(run.as_str(), self.joined()?, epoch));
        match self.0.transact(Some(run.clone()), vec![open]).await? {
            0 => Err(LedgerError::RunMoved(run.clone())),
            _ => Ok(()),
        }
    }

    async fn give_back(&self, runs: &[(RunId, Epoch)]) -> Result<()> {
        let node = self.joined()?;
        for (run, epoch) in runs {
            let give_back = Statement::new(GIVE_BACK, taking(run.as_str(), node, *epoch));
            self.0.transact(Some(run.clone()), vec![give_back]).await?;
        }
        Ok(())
    }

    async fn give_back_except(&self, kept: &[RunId]) -> Result<()> {
        let node = self.joined()?;
        let kept = serde_json::to_string(kept).map_err(|error| LedgerError::Internal(error.into()))?;
        let params = [node.node_id.as_str().into(), node.incarnation.into(), Param::from(kept.as_str())];
        self.0.transact(None, vec![Statement::new(B::NODE_SQL.give_back_except, params)]).await.map(drop)
    }

    async fn take_role(&self, role: Role) -> Result<TakenRole> {
        let node = self.joined()?;
        for _ in 0..MAX_ATTEMPTS {
            let found = self.one(B::NODE_SQL.role, vec![role.as_str().into()]).await?;
            let epoch = found.as_ref().map_or(Epoch(0), |found| found.epoch);
            match found.and_then(Ownership::owner) {
                Some(holder) if holder.node == *node => return Ok(TakenRole::Held(epoch)),
                Some(holder) if holder.is_alive() => return Ok(TakenRole::HeldBy(holder.node)),
                _ => {}
            }
            let take = Statement::new(B::NODE_SQL.take_role, taking(role.as_str(), node, epoch));
            if self.0.transact(None, vec![take]).await? == 0 {
                self.check_newest(node).await?;
            }
        }
        Err(contended("the role"))
    }

    async fn give_back_role(&self, role: Role, epoch: Epoch) -> Result<()> {
        let give_back = Statement::new(GIVE_BACK_ROLE, taking(role.as_str(), self.joined()?, epoch));
        self.0.transact(None, vec![give_back]).await.map(drop)
    }
}

/// The parameters of a statement that changes the owner of `what`, whose epoch is `epoch`.
fn taking(what: &str, node: &Node, epoch: Epoch) -> [Param<'static>; 4] {
    [what.into(), node.node_id.as_str().into(), node.incarnation.into(), Param::Int(to_int(epoch.0))]
}

fn millis(lease: Duration) -> i64 {
    i64::try_from(lease.as_millis()).unwrap_or(i64::MAX)
}

fn contended(what: &str) -> LedgerError {
    let problem = "several nodes try at the same time, or the heartbeat of this one has expired";
    LedgerError::Unavailable(format!("{what} cannot be taken now: {problem}").into())
}
