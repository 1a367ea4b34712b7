//! Instances of the service: every start gets a number that is larger than all before, and a unique name. Database and data
//! folder both store them, which reveals that one of them is an older copy.

use std::fmt;

use uuid::Uuid;

/// Size of a note in the data folder. It is constant, so that the note can be overwritten on a full disk.
const NOTE_BYTES: usize = 192;

/// What the name of the instance of all nodes begins with.
const NODES_PREFIX: &str = "nodes-";

/// One start of the service, or all nodes that use the database together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    epoch: u64,
    name: String,
}

impl Instance {
    /// Parses the text form of an instance.
    pub fn parse(text: &str) -> Option<Self> {
        let (epoch, name) = text.trim().split_once(' ')?;
        let name_fits = name.len() == 36 && name.is_ascii();
        Some(Self { epoch: epoch.parse().ok().filter(|_| name_fits)?, name: name.to_owned() })
    }

    /// Whether it is that of nodes, which other nodes join.
    pub fn is_of_nodes(&self) -> bool {
        self.name.starts_with(NODES_PREFIX)
    }
}

impl fmt::Display for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.epoch, self.name)
    }
}

/// The note about instances in the data folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct InstanceNote {
    /// The last instance that the database is known to have stored.
    current: Option<Instance>,
    /// An instance that was about to take over. Only the database knows whether it has.
    next: Option<Instance>,
    /// Upper bound of the size of the newest checkpoint that was signed with this folder. It is noted before the database
    /// receives the checkpoint.
    checkpoint: Option<u64>,
}

/// Whether a data folder and its database have the same history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Continuity {
    /// They have.
    Whole,
    /// The database is a copy from before the last use of the folder.
    OlderDatabase,
    /// The folder is a copy from before the last use of the database.
    OlderFolder,
}

impl InstanceNote {
    /// Parses a note. A malformed note is an empty one.
    pub(crate) fn parse(text: &str) -> Self {
        let mut lines = text.lines();
        let mut instance = || lines.next().and_then(Instance::parse);
        let (current, next) = (instance(), instance());
        Self { current, next, checkpoint: lines.next().and_then(|line| line.trim().parse().ok()) }
    }

    /// Returns the text of the note, which always has the same length.
    pub(crate) fn to_text(&self) -> String {
        let line = |instance: &Option<Instance>| instance.as_ref().map_or("-".to_owned(), Instance::to_string);
        let checkpoint = self.checkpoint.map_or("-".to_owned(), |size| size.to_string());
        let mut text = format!("{}\n{}\n{checkpoint}\n", line(&self.current), line(&self.next));
        text.extend(std::iter::repeat_n(' ', NOTE_BYTES.saturating_sub(text.len() + 1)));
        text.push('\n');
        text
    }

    /// Compares the folder with a database that belongs to the instance `stored`.
    pub(crate) fn continuity(&self, stored: Option<&Instance>) -> Continuity {
        match (&self.current, stored) {
            (_, Some(stored)) if self.next.as_ref() == Some(stored) => Continuity::Whole,
            (Some(current), Some(stored)) if current == stored => Continuity::Whole,
            (Some(current), Some(stored)) if stored.epoch > current.epoch => Continuity::OlderFolder,
            (Some(_), _) => Continuity::OlderDatabase,
            // An operator has removed the note, or an older version of the service did not write one.
            (None, _) => Continuity::Whole,
        }
    }

    /// Returns the note with a new instance that is about to take over from `stored`, and that instance.
    pub(crate) fn begin(&self, stored: Option<&Instance>) -> (Self, Instance) {
        let known = [self.current.as_ref(), self.next.as_ref(), stored];
        let epoch = known.into_iter().flatten().map(|instance| instance.epoch).max().unwrap_or(0) + 1;
        let next = Instance { epoch, name: Uuid::now_v7().to_string() };
        // An older database counts as such until the new instance has taken over.
        let is_whole = self.continuity(stored) == Continuity::Whole;
        let current = if is_whole { stored.cloned() } else { self.current.clone() };
        (Self { current, next: Some(next.clone()), ..self.clone() }, next)
    }

    /// Returns the instance that nodes join in a database that belongs to `stored`: that one if it is of nodes, otherwise a new one.
    pub(crate) fn of_nodes(&self, stored: Option<&Instance>) -> Instance {
        match stored {
            Some(stored) if stored.is_of_nodes() => stored.clone(),
            _ => {
                let Instance { epoch, name } = self.begin(stored).1;
                let name = name.replace('-', "").chars().rev().take(36 - NODES_PREFIX.len()).collect::<String>();
                Instance { epoch, name: format!("{NODES_PREFIX}{name}") }
            }
        }
    }

    /// Returns the note of a node's folder, whose database belongs to `instance`. Other nodes sign checkpoints too, so that it has
    /// none.
    pub(crate) fn of_node(instance: Instance) -> Self {
        Self { current: Some(instance), next: None, checkpoint: None }
    }

    /// Returns the note once the new instance has taken over.
    pub(crate) fn end(self) -> Self {
        Self { current: self.next, next: None, ..self }
    }

    /// Returns whether the folder is a copy from before the database received its newest checkpoint, of `size` leaves.
    pub(crate) fn lacks_checkpoint(&self, size: u64) -> bool {
        self.checkpoint.is_some_and(|known| size > known)
    }

    /// Returns the note with a checkpoint of `size` leaves.
    pub(crate) fn with_checkpoint(self, size: u64) -> Self {
        Self { checkpoint: Some(size), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_killed_start_does_not_count_as_an_older_copy() {
        let fresh = InstanceNote::default();
        assert_eq!(fresh.continuity(None), Continuity::Whole);
        let (begun, first) = fresh.begin(None);
        for stored in [None, Some(&first)] {
            assert_eq!(begun.continuity(stored), Continuity::Whole, "{stored:?}");
        }
        let ended = begun.end();
        assert_eq!(ended.continuity(Some(&first)), Continuity::Whole);
        let (begun, second) = ended.begin(Some(&first));
        for stored in [&first, &second] {
            assert_eq!(begun.continuity(Some(stored)), Continuity::Whole, "{stored}");
        }
        assert!(second.epoch > first.epoch);
    }

    #[test]
    fn a_copy_of_either_is_detected() {
        let (begun, first) = InstanceNote::default().begin(None);
        let copied = begun.end();
        let (begun, second) = copied.begin(Some(&first));
        let used = begun.end();
        assert_eq!(copied.continuity(Some(&second)), Continuity::OlderFolder);
        // A start with the copy that was killed before it took over does not change that.
        let killed = InstanceNote { next: Some(Instance { name: "other".to_owned(), ..second }), ..copied };
        let (_, third) = used.begin(Some(&used.current.clone().unwrap()));
        assert_eq!(killed.continuity(Some(&third)), Continuity::OlderFolder);
        for stored in [None, Some(&first)] {
            assert_eq!(used.continuity(stored), Continuity::OlderDatabase, "{stored:?}");
            let (begun, next) = used.begin(stored);
            assert_eq!(begun.continuity(stored), Continuity::OlderDatabase, "{stored:?}");
            assert_eq!(begun.continuity(Some(&next)), Continuity::Whole);
            assert!(next.epoch > used.current.as_ref().unwrap().epoch);
        }
    }

    #[test]
    fn nodes_share_an_instance_that_replaces_the_one_of_a_single_service() {
        let (begun, single) = InstanceNote::default().begin(None);
        let nodes = begun.end().of_nodes(Some(&single));
        assert!(nodes.is_of_nodes() && nodes.epoch > single.epoch && !single.is_of_nodes());
        assert_eq!(Instance::parse(&nodes.to_string()), Some(nodes.clone()));
        assert_eq!(InstanceNote::default().of_nodes(Some(&nodes)), nodes);
        let note = InstanceNote::of_node(nodes.clone());
        assert!(note.continuity(Some(&nodes)) == Continuity::Whole && !note.lacks_checkpoint(9));
        assert!(!note.begin(Some(&nodes)).1.is_of_nodes());
    }

    #[test]
    fn a_note_parses_as_it_was_written() {
        let (begun, _) = InstanceNote::default().begin(None);
        for note in
            [InstanceNote::default(), begun.clone(), begun.end(), InstanceNote::default().with_checkpoint(u64::MAX)]
        {
            let text = note.to_text();
            assert_eq!((text.len(), InstanceNote::parse(&text)), (NOTE_BYTES, note));
        }
        assert_eq!(InstanceNote::parse("\u{0}\u{0}"), InstanceNote::default());
        // The note of an older version.
        assert!(!InstanceNote::parse("-\n-\n   \n").lacks_checkpoint(1));
    }

    #[test]
    fn a_note_knows_the_newest_checkpoint() {
        let note = InstanceNote::default().with_checkpoint(7);
        assert!(!note.lacks_checkpoint(6) && !note.lacks_checkpoint(7) && note.lacks_checkpoint(8));
        let (begun, _) = note.begin(None);
        assert!(begun.lacks_checkpoint(8) && begun.end().lacks_checkpoint(8));
    }
}
