//! How far a search has come, in order of path.
//!
//! Work is done in any order; the cursor passes over what is done without a gap, and only that is in the answer.

use super::scan::Scanned;
use super::{MAX_BYTES, MAX_SKIPPED, Match, SearchQuery, SearchReport};

/// What stands at one place of a folder.
pub(super) enum Slot {
    /// A file that is not searched yet.
    Pending,
    /// A file that was.
    Done(Scanned),
    /// All that lies in a folder.
    Inside(Node),
}

/// One folder of a search.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node(usize);

/// The folders that are under way, and the answer so far.
pub(super) struct Progress {
    /// What each folder holds, once it is read; taken away when it is passed.
    nodes: Vec<Option<Vec<Slot>>>,
    /// The folder that the cursor is in, below those above it, each with its next place.
    cursor: Vec<(Node, usize)>,
    max_matches: usize,
    bytes: usize,
    report: SearchReport,
}

impl Progress {
    /// The folder, or the lone file, that was asked for.
    pub(super) const TOP: Node = Node(0);

    pub(super) fn new(query: &SearchQuery) -> Self {
        let report =
            SearchReport { matches: Vec::new(), files_searched: 0, truncated_reason: None, skipped: Vec::new() };
        Self { nodes: vec![None], cursor: vec![(Self::TOP, 0)], max_matches: query.max_matches, bytes: 0, report }
    }

    /// A folder that was found and is not read yet.
    pub(super) fn add(&mut self) -> Node {
        self.nodes.push(None);
        Node(self.nodes.len() - 1)
    }

    /// The folder was read: this is in it, in order of path.
    pub(super) fn fill(&mut self, node: Node, slots: Vec<Slot>) {
        self.nodes[node.0] = Some(slots);
    }

    /// The file at that place of a folder was searched.
    pub(super) fn finish(&mut self, node: Node, place: usize, scanned: Scanned) {
        if let Some(slot) = self.nodes[node.0].as_mut().and_then(|slots| slots.get_mut(place)) {
            *slot = Slot::Done(scanned);
        }
    }

    /// Moves the cursor as far as everything is done.
    pub(super) fn advance(&mut self) {
        while let Some((node, place)) = self.cursor.last_mut() {
            let Some(slots) = &mut self.nodes[node.0] else { return };
            match slots.get_mut(*place).map(|slot| std::mem::replace(slot, Slot::Pending)) {
                Some(Slot::Pending) => return,
                Some(Slot::Inside(inner)) => {
                    *place += 1;
                    self.cursor.push((inner, 0));
                }
                Some(Slot::Done(scanned)) => {
                    *place += 1;
                    if !self.report.is_cut() {
                        self.pass(scanned);
                    }
                }
                None => {
                    self.nodes[node.0] = None;
                    self.cursor.pop();
                }
            }
        }
    }

    /// Whether the answer cannot grow any more.
    pub(super) fn is_enough(&self) -> bool {
        self.report.is_cut()
    }

    /// The answer.
    pub(super) fn into_report(self) -> SearchReport {
        self.report
    }

    fn pass(&mut self, scanned: Scanned) {
        match scanned {
            Scanned::Passed => {}
            Scanned::Skipped(note) => {
                if self.report.skipped.len() < MAX_SKIPPED {
                    self.report.skipped.push(note);
                }
            }
            Scanned::Searched(matches) => {
                self.report.files_searched += 1;
                for found in matches {
                    self.bytes += size_of(&found);
                    if self.report.matches.len() == self.max_matches {
                        self.report.truncated_reason = Some("maxMatches".to_owned());
                        return;
                    }
                    if self.bytes > MAX_BYTES {
                        self.report.truncated_reason = Some("maxBytes".to_owned());
                        return;
                    }
                    self.report.matches.push(found);
                }
            }
        }
    }
}

impl SearchReport {
    fn is_cut(&self) -> bool {
        self.truncated_reason.is_some()
    }
}

/// About the bytes that a match takes in an answer.
fn size_of(found: &Match) -> usize {
    let lines = found.before.iter().chain(&found.after).map(|line| line.len() + 4);
    found.path.len() + found.snippet.len() + lines.sum::<usize>() + 100
}
