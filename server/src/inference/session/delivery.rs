//! The answers of a batch, handed over together.
//!
//! In: answers, from a session's thread. Out: each at its request. To send them one by one from here would wake an async
//! thread with the first, which on a busy core takes the place of this thread, and again with the next. So one message
//! wakes one task, and that task wakes the requests, which costs no system call.

use crate::batch::job::Answer;
use tokio::sync::{mpsc, oneshot};

/// One answer and its request.
pub(crate) struct AddressedAnswer {
    pub(crate) to: oneshot::Sender<Answer>,
    pub(crate) answer: Answer,
}

impl AddressedAnswer {
    /// A client that has gone away has dropped the receiver.
    fn deliver(self) {
        let _ = self.to.send(self.answer);
    }
}

/// The way from one session's thread. As many answers can be on it as requests are admitted.
#[derive(Debug, Clone)]
pub(crate) struct Delivery(mpsc::UnboundedSender<Vec<AddressedAnswer>>);

impl Delivery {
    /// Starts the task that delivers, on the runtime of the caller; it ends with the last sender.
    pub(crate) fn start() -> Self {
        let (send, mut batches) = mpsc::unbounded_channel::<Vec<AddressedAnswer>>();
        tokio::spawn(async move {
            while let Some(addressed_answers) = batches.recv().await {
                addressed_answers.into_iter().for_each(AddressedAnswer::deliver);
            }
        });
        Self(send)
    }

    /// Sends the answers of one batch.
    pub(crate) fn send(&self, mut addressed_answers: Vec<AddressedAnswer>) {
        if addressed_answers.len() > 1 {
            // Without its task the runtime has ended, and with it every request.
            let _ = self.0.send(addressed_answers);
        } else if let Some(addressed) = addressed_answers.pop() {
            addressed.deliver();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::refusal::{Reason, Refusal};

    #[tokio::test]
    async fn every_answer_reaches_its_request_and_a_lost_one_stops_nobody() {
        let delivery = Delivery::start();
        let mut waiting = Vec::new();
        for batch in [1, 3, 2] {
            let mut addressed_answers = Vec::new();
            for _ in 0..batch {
                let (to, receiver) = oneshot::channel();
                let answer = Err(Refusal::new(Reason::Inference, waiting.len().to_string()));
                addressed_answers.push(AddressedAnswer { to, answer });
                waiting.push(Some(receiver));
            }
            waiting.last_mut().unwrap().take_if(|_| batch == 3);
            delivery.send(addressed_answers);
        }
        drop(delivery);
        for (i, receiver) in waiting.into_iter().enumerate() {
            let Some(receiver) = receiver else { continue };
            assert_eq!(receiver.await.unwrap().unwrap_err().message, i.to_string());
        }
    }
}
