//! The byte stream of a connection. It records in the connection's slot when a response is being sent, hides a client's
//! half-close from hyper until the response is sent, and discards unsent data when a connection is cut off.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::server::TlsStream;

use super::connection_slots::ConnectionSlot;

/// A byte stream over a TCP socket.
pub(super) trait Socket: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    fn socket(&self) -> SockRef<'_>;
}

impl Socket for TcpStream {
    fn socket(&self) -> SockRef<'_> {
        SockRef::from(self)
    }
}

impl Socket for TlsStream<TcpStream> {
    fn socket(&self) -> SockRef<'_> {
        SockRef::from(self.get_ref().0)
    }
}

pub(super) struct TrackedStream<S: Socket> {
    stream: S,
    slot: ConnectionSlot,
    /// Whether something has been written since the last flush.
    sending: bool,
    /// Whether the client has closed its sending side.
    at_end: bool,
    /// A read that waits at the end of the stream until the response is sent.
    reader: Option<Waker>,
}

impl<S: Socket> TrackedStream<S> {
    pub(super) fn new(stream: S, slot: ConnectionSlot) -> Self {
        Self { stream, slot, sending: false, at_end: false, reader: None }
    }

    /// Starts the client's time limit when there is something for it to read.
    fn begin_sending(&mut self) {
        if !std::mem::replace(&mut self.sending, true) {
            self.slot.set_sending();
        }
    }
}

impl<S: Socket> Drop for TrackedStream<S> {
    /// Resets an unfinished connection. Otherwise the kernel would keep unsent data for minutes if the client does not read.
    fn drop(&mut self) {
        if self.sending {
            let _ = self.stream.socket().set_linger(Some(Duration::ZERO));
        }
    }
}

impl<S: Socket> AsyncRead for TrackedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.at_end {
            let filled = buffer.filled().len();
            ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
            self.at_end = buffer.filled().len() == filled && buffer.remaining() > 0;
        }
        // hyper would take the end of input for a lost connection and drop the response. For event streams that is right.
        if self.at_end && self.slot.is_responding() {
            self.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: Socket> AsyncWrite for TrackedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.begin_sending();
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes))?;
        self.slot.set_sending();
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.begin_sending();
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, slices))?;
        self.slot.set_sending();
        Poll::Ready(Ok(written))
    }

    /// Without vectored writes, hyper would copy the body for each client.
    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// hyper flushes when it has nothing left to write, so all responses have been sent.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        if std::mem::take(&mut self.sending) {
            self.slot.set_idle();
            self.reader.take().into_iter().for_each(Waker::wake);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
