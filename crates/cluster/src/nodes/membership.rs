//! The heartbeat of this process as a node, and the roles that it has.

use async_recursion::async_recursion as boxed;
use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use ledger::{Fence, Ledger, LedgerError, Node, NodeIdentity, Role, StoredNode, TakenRole};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::nodes::peers::Peers;
use config::StartError;
use config::{ConfigError, NodeConfig};

/// How long a heartbeat is valid. Only then can another node take the runs of a node that has ended without leaving.
pub const LEASE: Duration = Duration::from_secs(10);
/// The time between two heartbeats, and between two attempts to take roles.
const HEARTBEAT: Duration = Duration::from_secs(2);

/// Waits until no other node has the address of `own`. One that has ended without leaving has it until its heartbeat expires.
///
/// # Errors
///
/// If another node that is alive has it: each of both would be asked what only the other one answers.
#[boxed]
pub async fn until_address_is_free(ledger: &dyn Ledger, own: &NodeIdentity) -> Result<(), StartError> {
    let until = Instant::now() + LEASE + HEARTBEAT;
    loop {
        let nodes = ledger.nodes().await?;
        let has_address = |node: &&StoredNode| node.url == own.url && node.node.node_id != own.node_id;
        let Some(other) = nodes.iter().filter(has_address).find(|node| node.expires_in_ms > 0) else { return Ok(()) };
        let node_id = &other.node.node_id;
        if Instant::now() > until {
            let message = format!("--node-url: {} is the address of another node, which is alive: {node_id}", own.url);
            return Err(ConfigError(message).into());
        }
        tracing::warn!(node.id = node_id, "waiting for another node with the address of this one to end");
        tokio::time::sleep(HEARTBEAT).await;
    }
}

/// This process as a node.
pub struct Membership {
    /// What this process is known as.
    pub node: Node,
    /// The other nodes.
    pub peers: Peers,
    /// The roles that this process has, in the order of [`Role::ALL`].
    roles: [AtomicBool; Role::ALL.len()],
    /// Cancelled once this process must end.
    lost: CancellationToken,
    /// Why it must.
    fence: OnceLock<Fence>,
    stop: CancellationToken,
    /// A child of `stop`: cancelled once this process takes no more roles.
    stop_roles: CancellationToken,
    tasks: TaskTracker,
}

impl Membership {
    /// Starts the heartbeat of a process that has joined as `node`, and takes the roles that nobody has.
    ///
    /// # Errors
    ///
    /// If the TLS library fails.
    pub fn start(config: &NodeConfig, node: Node, ledger: Arc<dyn Ledger>) -> Result<Arc<Self>, StartError> {
        let peers = Peers::new(config, node.clone())?;
        for role in Role::ALL {
            show(role, false);
        }
        let stop = CancellationToken::new();
        let membership = Arc::new(Self {
            node,
            peers,
            roles: Default::default(),
            lost: CancellationToken::new(),
            fence: OnceLock::new(),
            stop_roles: stop.child_token(),
            stop,
            tasks: TaskTracker::new(),
        });
        membership.tasks.spawn(Arc::clone(&membership).keep_alive(Arc::clone(&ledger)));
        membership.tasks.spawn(Arc::clone(&membership).keep_roles(ledger));
        Ok(membership)
    }

    /// Whether this process has a role. Two nodes may believe so for a moment.
    pub fn holds(&self, role: Role) -> bool {
        self.roles.get(role as usize).is_some_and(|held| held.load(Ordering::Acquire))
    }

    /// Waits until this process must end because it is no node any more. Returns why.
    #[boxed]
    pub async fn lost(&self) -> LedgerError {
        self.lost.cancelled().await;
        LedgerError::Fenced(self.fence.get().copied().unwrap_or(Fence::Superseded))
    }

    /// Begins to give back the roles of this process, which takes no more of them: its work under them has ended, or soon will. It signs
    /// until it leaves.
    pub fn give_back_roles(&self) {
        self.stop_roles.cancel();
    }

    /// Ends the heartbeat, so that [`leave`](ledger::NodeLog::leave) is its end.
    #[boxed]
    pub async fn end(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    async fn keep_alive(self: Arc<Self>, ledger: Arc<dyn Ledger>) {
        let mut interval = tokio::time::interval(HEARTBEAT);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = interval.tick() => {}
                () = self.stop.cancelled() => return,
            }
            match ledger.heartbeat(LEASE).await {
                Ok(true) => {}
                Ok(false) => return self.lose(Fence::Superseded),
                Err(LedgerError::Fenced(fence)) => return self.lose(fence),
                Err(error) => {
                    metrics::counter!("workspaced_heartbeat_failures_total").increment(1);
                    let error = &error as &dyn Error;
                    tracing::warn!(error, "no heartbeat: other nodes take over the runs of this one if that lasts");
                }
            }
        }
    }

    fn lose(&self, fence: Fence) {
        tracing::error!(node.id = self.node.node_id, "{fence}");
        self.fence.get_or_init(|| fence);
        self.lost.cancel();
    }

    async fn keep_roles(self: Arc<Self>, ledger: Arc<dyn Ledger>) {
        let mut interval = tokio::time::interval(HEARTBEAT);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut epochs = [None; Role::ALL.len()];
        loop {
            tokio::select! {
                _ = interval.tick() => {}
                () = self.stop_roles.cancelled() => break,
            }
            for (role, epoch) in Role::ALL.into_iter().zip(&mut epochs) {
                *epoch = match ledger.take_role(role).await {
                    Ok(TakenRole::Held(epoch)) => Some(epoch),
                    Ok(TakenRole::HeldBy(_)) => None,
                    Err(error) => {
                        tracing::debug!(
                            role = role.as_str(),
                            error = &error as &dyn Error,
                            "a role could not be taken"
                        );
                        None
                    }
                };
                self.note(role, epoch.is_some());
            }
        }
        // The last records of this process are signed before it leaves, so that an older database is noticed at the next start.
        let ended = Role::ALL.into_iter().zip(epochs).filter(|(role, _)| *role != Role::Signing);
        for (role, epoch) in ended {
            self.note(role, false);
            let Some(epoch) = epoch else { continue };
            if let Err(error) = ledger.give_back_role(role, epoch).await {
                // Others take it when this process has left.
                tracing::debug!(role = role.as_str(), error = &error as &dyn Error, "a role could not be given back");
            }
        }
    }

    /// Notes whether this process has a role.
    fn note(&self, role: Role, is_held: bool) {
        let held = self.roles.get(role as usize);
        if held.is_some_and(|held| held.swap(is_held, Ordering::AcqRel) != is_held) {
            show(role, is_held);
            tracing::info!(role = role.as_str(), held = is_held, "the role of this node has changed");
        }
    }
}

/// Sets the metric that says whether this process has a role.
fn show(role: Role, is_held: bool) {
    metrics::gauge!("workspaced_node_role", "role" => role.as_str()).set(if is_held { 1.0 } else { 0.0 });
}
