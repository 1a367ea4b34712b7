//! Which instance of the service a database and a data folder belong to: a number that grows with every start, and a name
//! that no other start has. Both hold it, so that each tells whether the other is an older copy.

use std::fmt;

use uuid::Uuid;

/// The bytes of a note in the data folder: always as many, so that it can be written again on a disk that is full.
const NOTE_BYTES: usize = 192;

/// One start of the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Instance {
    epoch: u64,
    name: String,
}

impl Instance {
    /// The instance in its text form.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (epoch, name) = text.trim().split_once(' ')?;
        let name_fits = name.len() == 36 && name.is_ascii();
        Some(Self { epoch: epoch.parse().ok().filter(|_| name_fits)?, name: name.to_owned() })
    }
}

impl fmt::Display for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.epoch, self.name)
    }
}

/// What the data folder notes of instances.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Note {
    /// The last one whose name the database has got.
    current: Option<Instance>,
    /// One that was about to take over; whether it has is known to the database alone.
    next: Option<Instance>,
    /// How many leaves the newest checkpoint that was signed with this folder is over at most: it is noted before the database
    /// gets the checkpoint.
    checkpoint: Option<u64>,
}

/// How a data folder and its database fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Continuity {
    /// Nobody has used one of them without the other.
    Whole,
    /// The database is a copy from before the folder was used last.
    OlderDatabase,
    /// The folder is a copy from before the database was used last.
    OlderFolder,
}

impl Note {
    /// Reads a note. One that cannot be read is none.
    pub(crate) fn parse(text: &str) -> Self {
        let mut lines = text.lines();
        let mut instance = || lines.next().and_then(Instance::parse);
        let (current, next) = (instance(), instance());
        Self { current, next, checkpoint: lines.next().and_then(|line| line.trim().parse().ok()) }
    }

    /// Its text, of the same length for every note.
    pub(crate) fn to_text(&self) -> String {
        let line = |instance: &Option<Instance>| instance.as_ref().map_or("-".to_owned(), Instance::to_string);
        let checkpoint = self.checkpoint.map_or("-".to_owned(), |size| size.to_string());
        let mut text = format!("{}\n{}\n{checkpoint}\n", line(&self.current), line(&self.next));
        text.extend(std::iter::repeat_n(' ', NOTE_BYTES.saturating_sub(text.len() + 1)));
        text.push('\n');
        text
    }

    /// How the folder with this note fits a database that has the name of `stored`.
    pub(crate) fn continuity(&self, stored: Option<&Instance>) -> Continuity {
        match (&self.current, stored) {
            (_, Some(stored)) if self.next.as_ref() == Some(stored) => Continuity::Whole,
            (Some(current), Some(stored)) if current == stored => Continuity::Whole,
            (Some(current), Some(stored)) if stored.epoch > current.epoch => Continuity::OlderFolder,
            (Some(_), _) => Continuity::OlderDatabase,
            // An operator has removed the note, or no version before this one has left any.
            (None, _) => Continuity::Whole,
        }
    }

    /// The note of a folder whose next instance is about to take over from `stored`, and that instance.
    pub(crate) fn begin(&self, stored: Option<&Instance>) -> (Self, Instance) {
        let known = [self.current.as_ref(), self.next.as_ref(), stored];
        let epoch = known.into_iter().flatten().map(|instance| instance.epoch).max().unwrap_or(0) + 1;
        let next = Instance { epoch, name: Uuid::now_v7().to_string() };
        // Where the database is older, it stays so until the next instance has taken over.
        let is_whole = self.continuity(stored) == Continuity::Whole;
        let current = if is_whole { stored.cloned() } else { self.current.clone() };
        (Self { current, next: Some(next.clone()), ..self.clone() }, next)
    }

    /// The note of a folder whose next instance has taken over.
    pub(crate) fn end(self) -> Self {
        Self { current: self.next, next: None, ..self }
    }

    /// Whether the folder is a copy from before the database, whose newest checkpoint is over `size` leaves, got that.
    pub(crate) fn lacks_checkpoint(&self, size: u64) -> bool {
        self.checkpoint.is_some_and(|known| size > known)
    }

    /// The note of a folder that knows of a checkpoint over `size` leaves.
    pub(crate) fn with_checkpoint(self, size: u64) -> Self {
        Self { checkpoint: Some(size), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_that_was_killed_halfway_is_no_older_copy() {
        let fresh = Note::default();
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
    fn a_copy_of_either_is_noticed() {
        let (begun, first) = Note::default().begin(None);
        let copied = begun.end();
        let (begun, second) = copied.begin(Some(&first));
        let used = begun.end();
        assert_eq!(copied.continuity(Some(&second)), Continuity::OlderFolder);
        // A start of the copy that was killed before it took over changes nothing of that.
        let killed = Note { next: Some(Instance { name: "other".to_owned(), ..second }), ..copied };
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
    fn a_note_reads_as_it_was_written() {
        let (begun, _) = Note::default().begin(None);
        for note in [Note::default(), begun.clone(), begun.end(), Note::default().with_checkpoint(u64::MAX)] {
            let text = note.to_text();
            assert_eq!((text.len(), Note::parse(&text)), (NOTE_BYTES, note));
        }
        assert_eq!(Note::parse("\u{0}\u{0}"), Note::default());
        // As versions before this one have left it.
        assert!(!Note::parse("-\n-\n   \n").lacks_checkpoint(1));
    }

    #[test]
    fn a_folder_knows_of_every_checkpoint_that_was_signed_with_it() {
        let note = Note::default().with_checkpoint(7);
        assert!(!note.lacks_checkpoint(6) && !note.lacks_checkpoint(7) && note.lacks_checkpoint(8));
        let (begun, _) = note.begin(None);
        assert!(begun.lacks_checkpoint(8) && begun.end().lacks_checkpoint(8));
    }
}
