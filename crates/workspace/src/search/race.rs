//! Candidates searched by several threads, with an answer that does not depend on which is faster.
//!
//! Files are taken in order of path. The answer is cut at the first file at which all before it hold enough; nothing
//! beyond is begun once that is known.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use model::Rules;

use super::candidates::Candidate;
use super::pattern::Pattern;
use super::scan::{Scanned, Scanner};
use super::{MAX_BYTES, MAX_SKIPPED, Match, SearchQuery, SearchReport};
use crate::{Fault, Tree};

/// A ranged read and a search take files up to so many times `maxFileBytes`.
const RANGED_FACTOR: u64 = 16;

/// A search under way.
pub(super) struct Race<'a> {
    tree: &'a Tree,
    rules: &'a Rules,
    query: &'a SearchQuery,
    candidates: &'a [Candidate],
    cancel: &'a AtomicBool,
    /// The next candidate to take.
    next: AtomicUsize,
    /// No candidate from here on is needed.
    end: AtomicUsize,
    done: Mutex<Done>,
}

/// What has been done.
struct Done {
    /// Of each candidate, once it was searched.
    scanned: Vec<Option<Scanned>>,
    /// Candidates before this one are all done.
    prefix: usize,
    /// Matches, and their bytes, of those.
    matches: usize,
    bytes: usize,
    fault: Option<Fault>,
}

impl<'a> Race<'a> {
    pub(super) fn new(
        tree: &'a Tree,
        rules: &'a Rules,
        query: &'a SearchQuery,
        candidates: &'a [Candidate],
        cancel: &'a AtomicBool,
    ) -> Self {
        let scanned = candidates.iter().map(|_| None).collect();
        let done = Done { scanned, prefix: 0, matches: 0, bytes: 0, fault: None };
        let (next, end) = (AtomicUsize::new(0), AtomicUsize::new(candidates.len()));
        Self { tree, rules, query, candidates, cancel, next, end, done: Mutex::new(done) }
    }

    /// Searches with `threads` threads, the caller's among them.
    pub(super) fn run(self, pattern: &Pattern, threads: usize) -> Result<SearchReport, Fault> {
        thread::scope(|scope| {
            for _ in 1..threads.min(self.candidates.len()) {
                scope.spawn(|| self.work(pattern));
            }
            self.work(pattern);
        });
        let done = self.done.into_inner().unwrap_or_else(PoisonError::into_inner);
        match done.fault {
            Some(fault) => Err(fault),
            None => Ok(report(self.query, self.candidates, done.scanned)),
        }
    }

    fn work(&self, pattern: &Pattern) {
        let max_bytes = self.rules.policy().max_file_bytes.saturating_mul(RANGED_FACTOR);
        // One more than is shown tells whether some are missing.
        let max_matches = self.query.max_matches + 1;
        let mut scanner = Scanner::new(self.tree, pattern, self.query.context_lines, max_matches, max_bytes);
        loop {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            if index >= self.end.load(Ordering::Acquire) {
                return;
            }
            let scanned = match self.cancel.load(Ordering::Relaxed) {
                true => Err(Fault::Cancelled),
                false => scanner.scan(&self.candidates[index]),
            };
            self.note(index, scanned);
        }
    }

    fn note(&self, index: usize, scanned: Result<Scanned, Fault>) {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        match scanned {
            Ok(scanned) => done.scanned[index] = Some(scanned),
            Err(fault) => {
                done.fault.get_or_insert(fault);
                self.end.store(0, Ordering::Release);
                return;
            }
        }
        while let Some(Some(scanned)) = done.scanned.get(done.prefix) {
            let (matches, bytes) = match scanned {
                Scanned::Searched(matches) => (matches.len(), matches.iter().map(size_of).sum()),
                Scanned::Passed | Scanned::Skipped(_) => (0, 0),
            };
            done.prefix += 1;
            done.matches += matches;
            done.bytes += bytes;
            if done.matches > self.query.max_matches || done.bytes > MAX_BYTES {
                self.end.fetch_min(done.prefix, Ordering::AcqRel);
                return;
            }
        }
    }
}

/// The answer: matches in order, up to the bounds.
fn report(query: &SearchQuery, candidates: &[Candidate], scanned: Vec<Option<Scanned>>) -> SearchReport {
    let mut report =
        SearchReport { matches: Vec::new(), files_searched: 0, truncated_reason: None, skipped: Vec::new() };
    let mut bytes = 0;
    for (candidate, scanned) in candidates.iter().zip(scanned) {
        let matches = match scanned {
            None => break,
            Some(Scanned::Passed) => continue,
            Some(Scanned::Skipped(why)) => {
                if report.skipped.len() < MAX_SKIPPED {
                    report.skipped.push(format!("{}: {why}", candidate.at.shown));
                }
                continue;
            }
            Some(Scanned::Searched(matches)) => matches,
        };
        report.files_searched += 1;
        for next in matches {
            bytes += size_of(&next);
            let bound = if report.matches.len() == query.max_matches {
                "maxMatches"
            } else if bytes > MAX_BYTES {
                "maxBytes"
            } else {
                report.matches.push(next);
                continue;
            };
            report.truncated_reason = Some(bound.to_owned());
            return report;
        }
    }
    report
}

/// About the bytes that a match takes in an answer.
fn size_of(found: &Match) -> usize {
    let lines = found.before.iter().chain(&found.after).map(|line| line.len() + 4);
    found.path.len() + found.snippet.len() + lines.sum::<usize>() + 100
}
