//! How far a survey has come, in order of path.
//!
//! Work is done in any order; the cursor passes over what is done without a gap.

/// What stands at one place of a folder.
pub(super) enum Slot<T> {
    /// A file that is not looked at yet.
    Pending,
    /// A file that was.
    Done(T),
    /// All that lies in a folder.
    Inside(Node),
}

/// One folder of a survey.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node(usize);

/// The folders that are under way.
pub(super) struct Progress<T> {
    /// What each folder holds, once it is read; taken away when it is passed.
    nodes: Vec<Option<Vec<Slot<T>>>>,
    /// The folder that the cursor is in, below those above it, each with its next place.
    cursor: Vec<(Node, usize)>,
}

impl<T> Progress<T> {
    /// The folder that was asked for.
    pub(super) const TOP: Node = Node(0);

    pub(super) fn new() -> Self {
        Self { nodes: vec![None], cursor: vec![(Self::TOP, 0)] }
    }

    /// A folder that was found and is not read yet.
    pub(super) fn add(&mut self) -> Node {
        self.nodes.push(None);
        Node(self.nodes.len() - 1)
    }

    /// The folder was read: this is in it, in order of path.
    pub(super) fn fill(&mut self, node: Node, slots: Vec<Slot<T>>) {
        self.nodes[node.0] = Some(slots);
    }

    /// The file at that place of a folder was looked at.
    pub(super) fn finish(&mut self, node: Node, place: usize, seen: T) {
        if let Some(slot) = self.nodes[node.0].as_mut().and_then(|slots| slots.get_mut(place)) {
            *slot = Slot::Done(seen);
        }
    }

    /// The next of what is done without a gap, which the cursor passes.
    pub(super) fn pass(&mut self) -> Option<T> {
        loop {
            let (node, place) = self.cursor.last_mut()?;
            let slots = self.nodes[node.0].as_mut()?;
            match slots.get_mut(*place).map(|slot| std::mem::replace(slot, Slot::Pending)) {
                Some(Slot::Pending) => return None,
                Some(Slot::Inside(inner)) => {
                    *place += 1;
                    self.cursor.push((inner, 0));
                }
                Some(Slot::Done(seen)) => {
                    *place += 1;
                    return Some(seen);
                }
                None => {
                    self.nodes[node.0] = None;
                    self.cursor.pop();
                }
            }
        }
    }
}
