//! Questions and answers over one stream: one side asks, the other answers, in whatever order the answers are ready.

use std::{
    collections::HashMap,
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{Semaphore, mpsc, oneshot},
};

use super::frame;

/// The number of questions that can wait to be sent.
const QUEUE: usize = 64;

/// A question, or the answer to it, with the number of the question.
#[derive(Debug, Serialize, Deserialize)]
struct Numbered<T> {
    number: u64,
    said: T,
}

/// The side that asks. Clones ask over the same stream.
#[derive(Debug)]
pub(in crate::daemon) struct Asker<Q, A> {
    questions: mpsc::Sender<Numbered<Q>>,
    waiting: Arc<PendingAnswers<A>>,
    next: Arc<AtomicU64>,
}

impl<Q, A> Clone for Asker<Q, A> {
    fn clone(&self) -> Self {
        Self {
            questions: self.questions.clone(),
            waiting: Arc::clone(&self.waiting),
            next: Arc::clone(&self.next),
        }
    }
}

/// The waiting callers by the numbers of their questions; `None` once the stream has ended, because no answer can come any more.
#[derive(Debug)]
struct PendingAnswers<A>(Mutex<Option<HashMap<u64, oneshot::Sender<A>>>>);

impl<A> PendingAnswers<A> {
    fn open(&self) -> MutexGuard<'_, Option<HashMap<u64, oneshot::Sender<A>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<Q, A> Asker<Q, A>
where
    Q: Serialize + Send + Sync + 'static,
    A: DeserializeOwned + Send + 'static,
{
    /// Makes an asker, and the future that must run for it until the stream ends. An answer of more than `largest` bytes ends the stream.
    pub(in crate::daemon) fn begin<S>(
        stream: S,
        largest: usize,
    ) -> (Self, impl Future<Output = io::Result<()>> + Send)
    where
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        let (questions, mut queue) = mpsc::channel(QUEUE);
        let waiting = Arc::new(PendingAnswers(Mutex::new(Some(HashMap::new()))));
        let asker = Self { questions, waiting: Arc::clone(&waiting), next: Arc::default() };
        let (mut answers, mut out) = tokio::io::split(stream);
        let work = async move {
            let hear = async {
                while let Some(Numbered { number, said }) = frame::read(&mut answers, largest).await? {
                    let asked = waiting.open().as_mut().and_then(|waiting| waiting.remove(&number));
                    // The caller may have stopped waiting.
                    let _gone = asked.map(|asked| asked.send(said));
                }
                Ok(())
            };
            let say = async {
                while let Some(question) = queue.recv().await {
                    frame::write(&mut out, &question).await?;
                }
                Ok(())
            };
            let ended = tokio::select! {
                ended = hear => ended,
                ended = say => ended,
            };
            waiting.open().take();
            ended
        };
        (asker, work)
    }

    /// Asks a question, and waits for the answer; `None` if the other side has gone.
    pub(in crate::daemon) async fn ask(&self, said: Q) -> Option<A> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        self.waiting.open().as_mut()?.insert(number, sender);
        let asked = PendingQuestion { waiting: &self.waiting, number };
        self.questions.send(Numbered { number, said }).await.ok()?;
        let answer = answer.await.ok();
        drop(asked);
        answer
    }
}

/// A question without an answer. Dropping the value forgets the question, for example when the caller stops waiting.
struct PendingQuestion<'w, A> {
    waiting: &'w PendingAnswers<A>,
    number: u64,
}

impl<A> Drop for PendingQuestion<'_, A> {
    fn drop(&mut self) {
        if let Some(waiting) = self.waiting.open().as_mut() {
            waiting.remove(&self.number);
        }
    }
}

/// Answers questions until the stream ends, at most `at_a_time` at once: further questions are not read before. A question of more than `largest`
/// bytes ends the stream.
pub(in crate::daemon) async fn answer_all<Q, A, F>(
    stream: impl AsyncRead + AsyncWrite + Send + 'static,
    largest: usize,
    at_a_time: usize,
    mut answer: impl FnMut(Q) -> F,
) -> io::Result<()>
where
    Q: DeserializeOwned,
    A: Serialize + Send + Sync + 'static,
    F: Future<Output = A> + Send + 'static,
{
    let places = Arc::new(Semaphore::new(at_a_time));
    let (answers, mut queue) = mpsc::channel::<Numbered<A>>(at_a_time);
    let (mut questions, mut out) = tokio::io::split(stream);
    let hear = async {
        while let Some(Numbered { number, said }) = frame::read(&mut questions, largest).await? {
            let place = Arc::clone(&places).acquire_owned().await.map_err(io::Error::other)?;
            let (answers, answered) = (answers.clone(), answer(said));
            tokio::spawn(async move {
                let said = answered.await;
                let _gone = answers.send(Numbered { number, said }).await;
                drop(place);
            });
        }
        Ok(())
    };
    let say = async {
        while let Some(answer) = queue.recv().await {
            frame::write(&mut out, &answer).await?;
        }
        Ok(())
    };
    tokio::select! {
        ended = hear => ended,
        ended = say => ended,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const LARGEST: usize = 1 << 10;

    #[tokio::test]
    async fn answers_find_who_has_asked_whatever_their_order() {
        let (one, other) = tokio::io::duplex(64);
        tokio::spawn(answer_all(other, LARGEST, 4, |wait: u64| async move {
            tokio::time::sleep(Duration::from_millis(wait)).await;
            wait * 10
        }));
        let (asker, work) = Asker::<u64, u64>::begin(one, LARGEST);
        tokio::spawn(work);
        let asked: Vec<_> = [9, 1, 5, 3, 7, 2]
            .map(|wait| {
                let asker = asker.clone();
                tokio::spawn(async move { (wait, asker.ask(wait).await) })
            })
            .into();
        for asked in asked {
            let (wait, answer) = asked.await.unwrap();
            assert_eq!(answer, Some(wait * 10));
        }
        assert!(asker.waiting.open().as_ref().unwrap().is_empty());
    }

    #[tokio::test]
    async fn who_waits_when_the_other_side_goes_is_told_and_nobody_waits_afterwards() {
        let (one, other) = tokio::io::duplex(64);
        let (asker, work) = Asker::<u64, u64>::begin(one, LARGEST);
        let working = tokio::spawn(work);
        let asked = tokio::spawn({
            let asker = asker.clone();
            async move { asker.ask(1).await }
        });
        tokio::task::yield_now().await;
        drop(other);
        assert_eq!(asked.await.unwrap(), None);
        let _ended = working.await.unwrap();
        assert_eq!(asker.ask(2).await, None);
    }

    #[tokio::test]
    async fn a_question_that_nobody_waits_for_any_more_is_forgotten() {
        let (one, _other) = tokio::io::duplex(64);
        let (asker, work) = Asker::<u64, u64>::begin(one, LARGEST);
        tokio::spawn(work);
        let late = tokio::time::timeout(Duration::from_millis(5), asker.ask(1)).await;
        assert!(late.is_err());
        assert!(asker.waiting.open().as_ref().unwrap().is_empty());
    }

    #[tokio::test]
    async fn no_more_questions_are_taken_than_are_answered() {
        let (one, other) = tokio::io::duplex(1 << 16);
        let begun = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&begun);
        tokio::spawn(answer_all(other, LARGEST, 3, move |_: u64| {
            count.fetch_add(1, Ordering::Relaxed);
            std::future::pending::<u64>()
        }));
        let (asker, work) = Asker::<u64, u64>::begin(one, LARGEST);
        tokio::spawn(work);
        for n in 0..20 {
            let asker = asker.clone();
            tokio::spawn(async move { asker.ask(n).await });
        }
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(begun.load(Ordering::Relaxed), 3);
    }
}
