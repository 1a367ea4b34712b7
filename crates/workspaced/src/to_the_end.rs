//! Work that is carried to its end, whether or not its caller waits.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_util::FutureExt as _;
use futures_util::future::CatchUnwind;
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::CallError;
use crate::service::Service;

impl Service {
    /// Carries `work` out on the caller's task, and on a task of its own once the caller has gone away: a change must not be
    /// left journalled but not applied, and the ledger has to hear of files that are in place.
    ///
    /// # Errors
    ///
    /// As for `work`; its panic is a fault of ours and ends no more than the call.
    pub(crate) async fn to_the_end<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, CallError>> + Send + 'static,
    ) -> Result<T, CallError> {
        let tasks = self.0.tasks.clone();
        let work = Some(Box::pin(AssertUnwindSafe(work).catch_unwind()));
        let done = ToTheEnd { work, _counted: tasks.token(), tasks }.await;
        done.map_err(|_| CallError::Internal("the work panicked".into()))?
    }
}

/// Dropped unfinished, it goes on as one of `tasks`. No task from the start: to change tasks and threads twice takes as long
/// as to plan a small change.
struct ToTheEnd<F>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    work: Option<Pin<Box<CatchUnwind<AssertUnwindSafe<F>>>>>,
    tasks: TaskTracker,
    /// The end of the service waits for it.
    _counted: TaskTrackerToken,
}

impl<F> Future for ToTheEnd<F>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    type Output = std::thread::Result<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(work) = &mut self.work else { return Poll::Pending };
        let done = ready!(work.as_mut().poll(context));
        self.work = None;
        Poll::Ready(done)
    }
}

impl<F> Drop for ToTheEnd<F>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn drop(&mut self) {
        // Without a runtime nothing goes on any more: the next start finishes it.
        if let Some(work) = self.work.take()
            && let Ok(runtime) = Handle::try_current()
        {
            self.tasks.spawn_on(work, &runtime);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::oneshot;

    use super::*;

    fn carried(
        tasks: &TaskTracker,
        work: impl Future<Output = u8> + Send + 'static,
    ) -> ToTheEnd<impl Future<Output = u8> + Send + 'static> {
        ToTheEnd {
            work: Some(Box::pin(AssertUnwindSafe(work).catch_unwind())),
            _counted: tasks.token(),
            tasks: tasks.clone(),
        }
    }

    #[tokio::test]
    async fn work_goes_on_when_its_caller_has_gone_away() {
        let tasks = TaskTracker::new();
        let (go_on, told) = oneshot::channel();
        let (done, end) = oneshot::channel();
        let work = carried(&tasks, async move {
            let _ = told.await;
            let _ = done.send(());
            1
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
        assert_eq!(carried(&tasks, async { 7 }).await.unwrap(), 7);
        assert!(carried(&tasks, async { panic!("as it may") }).await.is_err());
        assert!(tasks.is_empty());
    }
}
