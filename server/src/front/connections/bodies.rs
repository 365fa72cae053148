//! Request and reply bodies between a connection and the routes.
//!
//! In: the body of a request or of a reply. Out: the same body, with its waits for the client recorded in the
//! connection's activity: a missing next part of a request, and every reply byte that is not in the socket's buffer
//! yet.

use super::activity::{Activity, HeldBytes, OpenRequest, Waiting};
use crate::request::CountedBytes;
use axum::body::{Body, HttpBody};
use bytes::{Buf, Bytes};
use hyper::body::{Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};

/// Approximate memory of a queued reply besides its body: stream, task and head.
const REPLY_BYTES: usize = 1 << 10;

/// Body of a request.
pub(super) struct RequestBody<B> {
    body: B,
    /// `None` after the end of the body.
    open: Option<Arc<OpenRequest>>,
    waiting: Option<Waiting>,
}

impl<B: HttpBody<Data = Bytes> + Unpin> RequestBody<B> {
    pub(super) fn new(body: B, open: &Arc<OpenRequest>) -> Self {
        let open = (!body.is_end_stream()).then(|| Arc::clone(open));
        Self {
            body,
            open,
            waiting: None,
        }
    }
}

impl<B: HttpBody<Data = Bytes> + Unpin> HttpBody for RequestBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        match &frame {
            Poll::Pending => {
                if let (Some(open), None) = (&self.open, &self.waiting) {
                    self.waiting = Some(open.wait_for_body());
                }
            }
            Poll::Ready(frame) => {
                self.waiting = None;
                if !matches!(frame, Some(Ok(_))) || self.body.is_end_stream() {
                    self.open = None;
                }
            }
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B> Drop for RequestBody<B> {
    fn drop(&mut self) {
        if let Some(open) = &self.open {
            open.activity.body_left.store(true, Relaxed);
        }
    }
}

/// Body of a reply. Its request stays open until the body has been handed to the connection.
pub(super) struct ReplyBody {
    pub(super) body: Body,
    pub(super) open: Arc<OpenRequest>,
}

impl HttpBody for ReplyBody {
    type Data = ReplyPart;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<ReplyPart>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        frame.map_ok(|frame| frame.map_data(|data| ReplyPart::new(data, &self.open.activity)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Part of a reply, counted until all of it is in the socket's buffer.
#[derive(Debug, Default)]
pub(super) struct ReplyPart {
    bytes: Bytes,
    /// `None` if the bytes themselves carry the count, or if there are no bytes.
    holding: Option<HeldBytes>,
}

impl ReplyPart {
    pub(super) fn new(bytes: Bytes, activity: &Arc<Activity>) -> Self {
        let holding = activity.hold(bytes.len() + REPLY_BYTES);
        Self {
            bytes,
            holding: Some(holding),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Splits off the first `at` bytes. All pieces share memory, which stays counted until the last of them is dropped.
    pub(super) fn split_to(&mut self, at: usize) -> Self {
        if let Some(holding) = self.holding.take() {
            let bytes = std::mem::take(&mut self.bytes);
            self.bytes = Bytes::from_owner(CountedBytes { bytes, _count: holding });
        }
        Self {
            bytes: self.bytes.split_to(at),
            holding: None,
        }
    }
}

impl Buf for ReplyPart {
    fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes
    }

    fn advance(&mut self, bytes: usize) {
        self.bytes.advance(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Admission, Limits};
    use prometheus::IntGauge;
    use std::time::Duration;

    fn activity() -> (Arc<Admission>, Arc<Activity>) {
        let limits = Limits {
            max_in_flight: 1,
            max_body_bytes: 1,
            max_buffered_bytes: 5000,
            timeout: Duration::from_secs(1),
        };
        let admission = Admission::new(limits, IntGauge::new("a", "a").unwrap());
        (Arc::clone(&admission), Activity::new(admission, false))
    }

    #[test]
    fn replies_of_every_size_are_counted_until_their_last_piece_is_gone() {
        let (admission, activity) = activity();
        let small = ReplyPart::new(Bytes::from_static(b"small"), &activity);
        assert_eq!(activity.held_bytes.load(Relaxed), 5 + REPLY_BYTES);
        let mut large = ReplyPart::new(Bytes::from(vec![7; 4000]), &activity);
        assert!(admission.replies_are_full());
        let (first, second) = (large.split_to(10), large.split_to(3000));
        assert_eq!((first.len(), second.len(), large.len()), (10, 3000, 990));
        drop((small, first, large));
        assert_eq!(activity.held_bytes.load(Relaxed), 4000 + REPLY_BYTES);
        assert_eq!(second.chunk(), vec![7; 3000]);
        drop(second);
        assert_eq!(activity.held_bytes.load(Relaxed), 0);
        assert!(!admission.replies_are_full());
    }

    #[tokio::test]
    async fn a_body_waits_for_its_client_until_its_next_part_is_there() {
        use futures::FutureExt;
        use http_body_util::BodyExt;
        let (_, activity) = activity();
        let (mut client, body) = futures::channel::mpsc::channel(1);
        let body = Body::from_stream(body.map(Ok::<Bytes, std::io::Error>));
        let open = activity.open(false);
        let mut received = RequestBody::new(body, &open);
        assert!(activity.idle_since().is_none());
        assert!(received.frame().now_or_never().is_none());
        assert!(activity.waits_for_client() && activity.idle_since().is_some());
        client.try_send(Bytes::from_static(b"a")).unwrap();
        received.frame().await.unwrap().unwrap();
        assert!(!activity.waits_for_client());
        drop(client);
        assert!(received.frame().await.is_none());
        assert!(!activity.waits_for_client() && activity.idle_since().is_none());
        drop((open, received));
        assert!(activity.idle_since().is_some());
    }

    use futures::StreamExt;

    #[test]
    fn a_stream_is_at_work_while_a_message_is_answered_and_its_client_takes_replies() {
        let (_, activity) = activity();
        let (stream, working) = (activity.open(false), activity.open(false));
        let body = stream.wait_for_body();
        let answers = [(); 2].map(|()| stream.wait_for_answer());
        drop(working);
        assert!(activity.idle_since().is_none());
        let room = stream.wait_for_room();
        assert!(activity.idle_since().is_some(), "its client does not take replies");
        drop(room);
        let [first, second] = answers;
        drop(first);
        assert!(activity.idle_since().is_none());
        drop(second);
        assert!(activity.idle_since().is_some(), "its client sends nothing");
        drop(body);
        assert!(activity.idle_since().is_none());
    }

    #[test]
    fn a_request_that_waits_twice_hides_no_other() {
        let (_, activity) = activity();
        let (stream, working) = (activity.open(false), activity.open(false));
        let _waits = (stream.wait_for_body(), stream.wait_for_room());
        assert!(activity.idle_since().is_none());
        drop(working);
        assert!(activity.idle_since().is_some());
    }
}
