//! The kinds of faults, which of them a seed makes, and how each is made and undone.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rustix::process::Signal;

use super::cluster::{NODES, Node, Ways};
use super::link::{Link, Way};
use super::postgres::Postgres;
use crate::harness::cleanup;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    // Of a node. One of these at a time.
    Kill,
    /// Longer than a lease.
    Pause,
    WipedDisk,
    WrongClock,
    RollingUpgrade,
    // Of a way or the database. One of these at a time, beside one of a node.
    DatabaseCut,
    StoreCut,
    NodesCut,
    DatabaseSlow,
    StoreSlow,
    NodesSlow,
    Promotion,
}

/// Faults of nodes.
pub(crate) const OF_NODES: [Fault; 5] =
    [Fault::Kill, Fault::Pause, Fault::WipedDisk, Fault::WrongClock, Fault::RollingUpgrade];
/// Faults of ways and of the database.
pub(crate) const OF_WAYS: [Fault; 7] = [
    Fault::DatabaseCut,
    Fault::StoreCut,
    Fault::NodesCut,
    Fault::DatabaseSlow,
    Fault::StoreSlow,
    Fault::NodesSlow,
    Fault::Promotion,
];

/// Returns the `count` faults of a seed. Consecutive seeds make every kind equally often: all seeds together go through the
/// kinds again and again, in an order that is new each time.
pub(crate) fn choose(kinds: &[Fault], seed: u64, count: usize) -> Vec<Fault> {
    let first = usize::try_from(seed).unwrap() * count;
    let at = |position: usize| {
        let mut order = kinds.to_vec();
        order.shuffle(&mut StdRng::seed_from_u64((position / kinds.len()) as u64));
        order[position % kinds.len()]
    };
    (first..first + count).map(at).collect()
}

/// Returns the library that gives a process another clock, which is compiled once.
fn clock_library() -> Option<&'static Path> {
    static LIBRARY: OnceLock<Option<PathBuf>> = OnceLock::new();
    let compile = || {
        let folder = cleanup::new_folder("clock");
        let (source, library) = (folder.join("clock.c"), folder.join("clock.so"));
        std::fs::write(&source, include_str!("clock.c")).unwrap();
        let compiler = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).args([&library, &source]).status();
        compiler.is_ok_and(|status| status.success()).then_some(library)
    };
    // Other systems than Linux have no such variable.
    LIBRARY.get_or_init(|| if cfg!(target_os = "linux") { compile() } else { None }).as_deref()
}

/// Makes faults, and writes down which.
pub(crate) struct Faults {
    name: String,
    began: Instant,
    random: StdRng,
    pub(crate) made: BTreeMap<Fault, u32>,
}

impl Faults {
    /// `name` begins each line that is printed.
    pub(crate) fn new(name: &str, began: Instant, seed: u64) -> Self {
        Self { name: name.to_owned(), began, random: StdRng::seed_from_u64(seed), made: BTreeMap::new() }
    }

    fn say(&mut self, fault: Fault, what: &str) {
        println!("{}: {:5.1} s: {fault:?}: {what}", self.name, self.began.elapsed().as_secs_f64());
        *self.made.entry(fault).or_default() += 1;
    }

    fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(self.random.random_range(from..=to))
    }

    async fn sleep(&mut self, from_millis: u64, to_millis: u64) {
        let time = self.millis(from_millis, to_millis);
        tokio::time::sleep(time).await;
    }

    /// Makes faults of nodes, one after the other.
    pub(crate) async fn of_nodes(mut self, faults: Vec<Fault>, mut nodes: Vec<Node>) -> (Self, Vec<Node>) {
        for fault in faults {
            self.sleep(500, 3000).await;
            let number = self.random.random_range(0..NODES);
            let node = &mut nodes[number];
            match fault {
                Fault::Kill => {
                    let away = if self.random.random() { Duration::ZERO } else { self.millis(1000, 13_000) };
                    self.say(fault, &format!("node {number} for {away:?}"));
                    node.kill();
                    tokio::time::sleep(away).await;
                    node.start(&[]).await;
                }
                Fault::Pause => {
                    let time = self.millis(10_500, 14_000);
                    self.say(fault, &format!("node {number} for {time:?}"));
                    node.server.signal(Signal::STOP);
                    tokio::time::sleep(time).await;
                    node.server.signal(Signal::CONT);
                }
                Fault::WipedDisk => {
                    self.say(fault, &format!("node {number}"));
                    node.kill();
                    node.wipe();
                    node.start(&[]).await;
                }
                Fault::WrongClock => self.wrong_clock(number, node).await,
                Fault::RollingUpgrade => {
                    self.say(fault, "all nodes");
                    for node in &mut nodes {
                        node.stop();
                        node.start(&[]).await;
                    }
                }
                of_ways => panic!("{of_ways:?} is no fault of a node"),
            }
        }
        (self, nodes)
    }

    async fn wrong_clock(&mut self, number: usize, node: &mut Node) {
        let Some(library) = clock_library() else {
            println!("{}: SKIPPED: WrongClock: no library could be compiled", self.name);
            return;
        };
        let offset = [-7200, -50, -5, 5, 50, 7200][self.random.random_range(0..6)];
        self.say(Fault::WrongClock, &format!("node {number} by {offset} s"));
        let env = [("LD_PRELOAD", library.display().to_string()), ("WORKSPACED_TEST_CLOCK", offset.to_string())];
        node.stop();
        node.start(&env.map(|(name, value)| (name.to_owned(), value))).await;
        self.sleep(3000, 8000).await;
        node.stop();
        node.start(&[]).await;
    }

    /// Makes faults of ways and of the database, one after the other.
    pub(crate) async fn of_ways(
        mut self,
        faults: Vec<Fault>,
        ways: Ways,
        mut postgres: Postgres,
    ) -> (Self, Ways, Postgres) {
        for fault in faults {
            self.sleep(500, 3000).await;
            let slow = Way::Slow(self.millis(10, 300));
            let cut = if self.random.random() { Way::Cut } else { Way::Silent };
            match fault {
                Fault::DatabaseCut => self.disturb(fault, &ways.database, cut).await,
                Fault::StoreCut => self.disturb(fault, &ways.store, cut).await,
                Fault::NodesCut => self.disturb(fault, &ways.nodes, cut).await,
                Fault::DatabaseSlow => self.disturb(fault, &ways.database, slow).await,
                Fault::StoreSlow => self.disturb(fault, &ways.store, slow).await,
                Fault::NodesSlow => self.disturb(fault, &ways.nodes, slow).await,
                Fault::Promotion => self.promote(&ways, &mut postgres).await,
                of_nodes => panic!("{of_nodes:?} is no fault of a way"),
            }
        }
        (self, ways, postgres)
    }

    /// Disturbs the way of one node, or of all.
    async fn disturb(&mut self, fault: Fault, links: &[Link], way: Way) {
        // At times longer than a lease.
        let is_long = self.random.random_ratio(1, 5);
        let time = if is_long { self.millis(10_500, 13_000) } else { self.millis(500, 6000) };
        let number = self.random.random_range(0..=links.len());
        let (which, links) = match links.get(number) {
            Some(link) => (format!("of node {number}"), std::slice::from_ref(link)),
            None => ("of all nodes".to_owned(), links),
        };
        self.say(fault, &format!("{way:?} {which} for {time:?}"));
        for link in links {
            link.set(way);
        }
        tokio::time::sleep(time).await;
        for link in links {
            link.set(Way::Open);
        }
    }

    async fn promote(&mut self, ways: &Ways, postgres: &mut Postgres) {
        self.say(Fault::Promotion, "the primary is killed, and the standby is promoted");
        postgres.promote().await;
        ways.database.iter().for_each(|link| link.turn(&postgres.address()));
        postgres.replace_standby().await;
    }
}

#[test]
fn consecutive_seeds_make_every_kind_equally_often() {
    for (kinds, count) in [(&OF_NODES[..], 3), (&OF_WAYS, 6), (&OF_WAYS, 2)] {
        let mut counts = BTreeMap::new();
        for seed in 1..=70 {
            for fault in choose(kinds, seed, count) {
                *counts.entry(fault).or_insert(0) += 1;
            }
        }
        let (least, most) = (counts.values().min().unwrap(), counts.values().max().unwrap());
        assert!(counts.len() == kinds.len() && most - least <= 2, "{counts:?}");
    }
    assert_eq!(choose(&OF_WAYS, 7, 3), choose(&OF_WAYS, 7, 3));
}
