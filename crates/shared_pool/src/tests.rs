use std::pin::pin;
use std::task::{Context, Poll, Waker};

use proptest::prelude::*;

use super::*;

const SOON: Duration = Duration::from_millis(20);

fn party(name: &str) -> Parties {
    Parties::one(Party::of("test", name))
}

/// Polls once without a task: what is granted at once is ready.
fn poll<T>(future: std::pin::Pin<&mut (impl Future<Output = T> + ?Sized)>) -> Poll<T> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn a_party_gets_a_quarter_of_an_idle_pool_and_others_always_find_room() {
    let pool = SharedPool::new("test", 256);
    let take_all = |name: &str| {
        let permits: Vec<_> = std::iter::from_fn(|| pool.try_acquire(party(name), 1).ok()).collect();
        (permits.len(), permits)
    };
    let (count, greedy) = take_all("a");
    assert_eq!(count, 64);
    assert_eq!(pool.try_acquire(party("a"), 1).unwrap_err(), Denied::OwnShare);
    let others: Vec<_> = ["b", "c", "d"].map(take_all).into();
    let counts: Vec<_> = others.iter().map(|(count, _)| *count).collect();
    assert_eq!(counts, [48, 36, 27], "each gets a quarter of what the ones before have left");
    assert!(pool.free() > 256 / 4);
    drop((greedy, others));
    assert_eq!(pool.free(), 256);
    assert!(pool.0.state.lock().usage.is_empty(), "an idle pool has no parties");
}

#[test]
fn a_small_pool_gives_each_party_one_and_none_the_last() {
    for total in 2..8 {
        let pool = SharedPool::new("test", total);
        let _first = pool.try_acquire(party("a"), 1).unwrap();
        assert_eq!(pool.try_acquire(party("a"), 1).unwrap_err(), Denied::OwnShare, "{total}");
        let _second = pool.try_acquire(party("b"), 1).unwrap();
    }
    assert_eq!(SharedPool::new("test", 0).total(), 1);
    assert!(SharedPool::new("test", 1).try_acquire(party("a"), 1).is_ok());
}

#[test]
fn an_item_that_is_larger_than_a_share_is_taken_alone() {
    let pool = SharedPool::new("test", 100);
    let large = pool.try_acquire(party("a"), 1000).unwrap();
    assert_eq!((large.amount(), pool.free()), (100, 0));
    assert_eq!(pool.try_acquire(party("b"), 1).unwrap_err(), Denied::Exhausted);
    assert_eq!(pool.try_acquire(party("a"), 1).unwrap_err(), Denied::OwnShare);
}

#[test]
fn an_item_that_grows_stays_one_item() {
    let pool = SharedPool::new("test", 100);
    let mut large = pool.try_acquire(party("a"), 10).unwrap();
    large.try_grow(60).unwrap();
    large.try_grow(20).unwrap();
    assert_eq!((large.amount(), pool.free()), (60, 40));
    let mut second = pool.try_acquire(party("b"), 10).unwrap();
    assert_eq!(large.try_grow(100), Err(Denied::Exhausted));
    second.try_grow(20).unwrap();
    let _third = pool.try_acquire(party("c"), 1).unwrap();
    let mut fourth = pool.try_acquire(party("c"), 1).unwrap();
    assert_eq!(fourth.try_grow(15), Err(Denied::OwnShare));
    drop((large, second));
    fourth.try_grow(15).unwrap();
    assert_eq!(pool.free(), 84);
}

#[test]
fn a_run_has_one_share_for_all_of_its_tokens_and_so_has_a_token_for_all_runs() {
    let pool = SharedPool::new("test", 8);
    let of = |token: &str, run: &str| Parties::two(Party::of("token", token), Party::of("run", run));
    let _held = [pool.try_acquire(of("1", "r"), 1).unwrap(), pool.try_acquire(of("2", "r"), 1).unwrap()];
    assert_eq!(pool.try_acquire(of("3", "r"), 1).unwrap_err(), Denied::OwnShare);
    let _other = pool.try_acquire(of("3", "s"), 1).unwrap();
    assert_eq!(pool.try_acquire(of("3", "t"), 1).unwrap_err(), Denied::OwnShare);
}

#[test]
fn nobody_waits_behind_the_queue_of_another() {
    for total in [1, 8] {
        let pool = SharedPool::new("test", total);
        let mut held: Vec<_> =
            (0..total).map(|number| pool.try_acquire(party(&format!("{number}")), 1).unwrap()).collect();
        let mut queue: Vec<_> = (0..10).map(|_| Box::pin(pool.acquire(party("0"), 1))).collect();
        assert!(queue.iter_mut().all(|waiter| poll(waiter.as_mut()).is_pending()));
        let mut polite = pin!(pool.acquire(party("polite"), 1));
        assert!(poll(polite.as_mut()).is_pending());
        drop(held.pop());
        let Poll::Ready(permit) = poll(polite.as_mut()) else { panic!("the polite one is next: {total}") };
        drop(permit);
        drop(held);
        assert!(queue.iter_mut().any(|waiter| poll(waiter.as_mut()).is_ready()));
    }
}

#[test]
fn two_that_wait_for_one_permit_take_turns() {
    let pool = SharedPool::new("test", 1);
    let mut held = Some(pool.try_acquire(party("a"), 1).unwrap());
    let mut queues = ["a", "b"].map(|name| (0..5).map(|_| Box::pin(pool.acquire(party(name), 1))).collect::<Vec<_>>());
    for waiter in queues.iter_mut().flatten() {
        assert!(poll(waiter.as_mut()).is_pending());
    }
    let mut served = String::new();
    for _ in 0..8 {
        drop(held.take());
        for (name, queue) in ["a", "b"].iter().zip(&mut queues) {
            if let Poll::Ready(permit) = poll(queue[0].as_mut()) {
                held = Some(permit);
                drop(queue.remove(0));
                served += name;
            }
        }
    }
    assert_eq!(served, "babababa");
}

#[test]
fn nobody_overtakes_one_that_waits_for_room() {
    let pool = SharedPool::new("test", 100);
    let held = pool.try_acquire(party("a"), 60).unwrap();
    let mut large = Box::pin(pool.acquire(party("b"), 60));
    assert!(poll(large.as_mut()).is_pending());
    assert_eq!(pool.try_acquire(party("c"), 1).unwrap_err(), Denied::Exhausted);
    let mut small = pin!(pool.acquire(party("c"), 1));
    assert!(poll(small.as_mut()).is_pending());
    // Once it does not wait any more, the others have their room.
    drop(large);
    assert!(poll(small.as_mut()).is_ready());
    drop(held);
}

#[test]
fn one_that_waits_for_its_own_share_delays_nobody() {
    let pool = SharedPool::new("test", 8);
    let _held = [pool.try_acquire(party("a"), 1).unwrap(), pool.try_acquire(party("a"), 1).unwrap()];
    let mut waiting = pin!(pool.acquire(party("a"), 1));
    assert!(poll(waiting.as_mut()).is_pending());
    assert!(pool.try_acquire(party("b"), 1).is_ok());
}

#[tokio::test]
async fn a_timeout_says_who_is_the_cause() {
    let pool = SharedPool::new("test", 1);
    let held = pool.acquire_within(party("a"), 1, SOON).await.unwrap();
    assert_eq!(pool.acquire_within(party("a"), 1, SOON).await.unwrap_err(), Denied::OwnShare);
    assert_eq!(pool.acquire_within(party("b"), 1, SOON).await.unwrap_err(), Denied::Exhausted);
    drop(held);
    assert!(pool.0.state.lock().usage.is_empty(), "who has left has no entry");
}

#[tokio::test]
async fn parties_are_those_of_the_request() {
    assert_eq!(Parties::current(), Parties::default());
    let (peer, token) = (party("peer"), party("token"));
    peer.scope(async {
        assert_eq!(Parties::current(), peer);
        token.identify();
        tokio::task::yield_now().await;
        assert_eq!(Parties::current(), token);
        assert_eq!(token.and(Party::of("test", "token")), token);
    })
    .await;
    assert_eq!(Parties::current(), Parties::default());
}

proptest! {
    /// Whatever is taken, awaited, given up and released: nothing is lost, and what can be given is given.
    #[test]
    fn a_pool_loses_nothing(total in 1..40_u64, steps in prop::collection::vec((0..4_u8, 0..6_u8, 1..12_u64), 1..200)) {
        let pool = SharedPool::new("test", total);
        let mut held = Vec::new();
        let mut waiting: Vec<std::pin::Pin<Box<dyn Future<Output = Permit>>>> = Vec::new();
        for (action, name, amount) in steps {
            let parties = Parties::two(Party::of("one", name), Party::of("other", name / 2));
            match action {
                0 => held.extend(pool.try_acquire(parties, amount)),
                1 => {
                    let pool = pool.clone();
                    waiting.push(Box::pin(async move { pool.acquire(parties, amount).await }));
                }
                2 if !held.is_empty() => drop(held.swap_remove(usize::from(name) % held.len())),
                3 if !waiting.is_empty() => drop(waiting.swap_remove(usize::from(name) % waiting.len())),
                _ => {}
            }
            // One that begins to wait may give way to one that was asked before it: that one is asked again.
            for _ in 0..2 {
                waiting.retain_mut(|waiter| match poll(waiter.as_mut()) {
                    Poll::Ready(permit) => { held.push(permit); false }
                    Poll::Pending => true,
                });
            }
            let used: u64 = held.iter().map(Permit::amount).sum();
            prop_assert_eq!(pool.free() + used, pool.total());
            prop_assert!(pool.0.state.lock().queues.iter().all(|queue| !queue.waiters.is_empty()));
        }
        // Whoever waits is served in the end.
        while !waiting.is_empty() {
            prop_assert!(!held.is_empty(), "somebody waits for a pool that nobody uses");
            drop(held.pop());
            waiting.retain_mut(|waiter| match poll(waiter.as_mut()) {
                Poll::Ready(permit) => { held.push(permit); false }
                Poll::Pending => true,
            });
        }
        drop(held);
        prop_assert_eq!(pool.free(), total);
        prop_assert!(pool.0.state.lock().usage.is_empty());
    }
}
