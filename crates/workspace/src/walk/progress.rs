//! The results of a walk, handed out in path order although the work is done in any order.

/// An item of a folder.
pub(super) enum Slot<T> {
    /// A file that was not visited yet.
    Pending,
    /// The result of a file.
    Done(T),
    /// The contents of a subfolder.
    Contents(WalkNode),
}

/// A folder of a walk.
#[derive(Clone, Copy, Debug)]
pub(super) struct WalkNode(usize);

/// The folders of a walk.
pub(super) struct Progress<T> {
    /// The items of each folder that was read. Freed once the cursor has passed them.
    nodes: Vec<Option<Vec<Slot<T>>>>,
    /// The folder of the cursor and those above it, each with its next item.
    cursor: Vec<(WalkNode, usize)>,
}

impl<T> Progress<T> {
    /// The folder at which the walk starts.
    pub(super) const ROOT: WalkNode = WalkNode(0);

    pub(super) fn new() -> Self {
        Self { nodes: vec![None], cursor: vec![(Self::ROOT, 0)] }
    }

    /// Adds a folder that was not read yet.
    pub(super) fn add(&mut self) -> WalkNode {
        self.nodes.push(None);
        WalkNode(self.nodes.len() - 1)
    }

    /// Sets the items of a folder, in path order.
    pub(super) fn set_slots(&mut self, node: WalkNode, slots: Vec<Slot<T>>) {
        self.nodes[node.0] = Some(slots);
    }

    /// Sets the result of a file.
    pub(super) fn finish(&mut self, node: WalkNode, slot: usize, finding: T) {
        if let Some(slot) = self.nodes[node.0].as_mut().and_then(|slots| slots.get_mut(slot)) {
            *slot = Slot::Done(finding);
        }
    }

    /// Returns the next result in path order; `None` if it is not available yet.
    pub(super) fn next(&mut self) -> Option<T> {
        loop {
            let (node, next) = self.cursor.last_mut()?;
            let slots = self.nodes[node.0].as_mut()?;
            match slots.get_mut(*next).map(|slot| std::mem::replace(slot, Slot::Pending)) {
                Some(Slot::Pending) => return None,
                Some(Slot::Contents(child)) => {
                    *next += 1;
                    self.cursor.push((child, 0));
                }
                Some(Slot::Done(finding)) => {
                    *next += 1;
                    return Some(finding);
                }
                None => {
                    self.nodes[node.0] = None;
                    self.cursor.pop();
                }
            }
        }
    }
}
