//! Work that is carried to its end, whether or not its caller waits.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::CallError;
use crate::body_memory::HeldMemory;
use crate::lane::as_one_call;
use crate::service::Service;

impl Service {
    /// Carries `work` out on the caller's task, and on a task of its own once the caller has gone away: a change must not be
    /// left journalled but not applied, and the ledger has to hear of files that are in place.
    ///
    /// # Errors
    ///
    /// As for `work`; its panic is a fault of ours and ends no more than the call.
    pub(crate) fn to_the_end<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, CallError>> + Send + 'static,
    ) -> impl Future<Output = Result<T, CallError>> + Send {
        // Not inside the future, which would have to have room for the work.
        let done = ToTheEnd::new(&self.0.tasks, work);
        async move { done.await.map_err(|_| CallError::Internal("the work panicked".into()))? }
    }
}

/// Dropped unfinished, it goes on as one of `tasks`. No task from the start: to change tasks and threads twice takes as long
/// as to plan a small change.
struct ToTheEnd<T: Send + 'static> {
    work: Option<BoxFuture<'static, std::thread::Result<T>>>,
    tasks: TaskTracker,
    /// The memory of what was sent for the work.
    held: HeldMemory,
    /// The end of the service waits for it.
    _counted: TaskTrackerToken,
}

impl<T: Send + 'static> ToTheEnd<T> {
    fn new(tasks: &TaskTracker, work: impl Future<Output = T> + Send + 'static) -> Self {
        let work = AssertUnwindSafe(as_one_call(work)).catch_unwind().boxed();
        Self { work: Some(work), tasks: tasks.clone(), held: HeldMemory::of_task(), _counted: tasks.token() }
    }
}

impl<T: Send + 'static> Future for ToTheEnd<T> {
    type Output = std::thread::Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(work) = &mut self.work else { return Poll::Pending };
        let done = ready!(work.as_mut().poll(context));
        self.work = None;
        Poll::Ready(done)
    }
}

impl<T: Send + 'static> Drop for ToTheEnd<T> {
    fn drop(&mut self) {
        // Without a runtime nothing goes on any more: the next start finishes it.
        if let Some(work) = self.work.take()
            && let Ok(runtime) = Handle::try_current()
        {
            let held = self.held.clone();
            let rest = async move {
                let _ = work.await;
                drop(held);
            };
            self.tasks.spawn_on(rest, &runtime);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn work_goes_on_when_its_caller_has_gone_away() {
        let tasks = TaskTracker::new();
        let (go_on, told) = oneshot::channel();
        let (done, end) = oneshot::channel();
        let work = ToTheEnd::new(&tasks, async move {
            let _ = told.await;
            let _ = done.send(());
        });
        assert!(tokio::time::timeout(Duration::from_millis(1), work).await.is_err());
        tasks.close();
        assert_eq!(tasks.len(), 1);
        go_on.send(()).unwrap();
        tasks.wait().await;
        end.await.unwrap();
    }

    #[tokio::test]
    async fn work_that_ends_leaves_no_task() {
        let tasks = TaskTracker::new();
        assert_eq!(ToTheEnd::new(&tasks, async { 7_u8 }).await.unwrap(), 7);
        assert!(ToTheEnd::new(&tasks, async { panic!("as it may") }).await.is_err());
        assert!(tasks.is_empty());
    }
}
