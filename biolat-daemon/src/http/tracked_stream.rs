//! The byte stream of a connection. It records in the connection's slot when responses are being sent, and discards what
//! the kernel still has to send when a connection is cut off.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::server::TlsStream;

use super::connection_slots::ConnectionSlot;

/// A byte stream on top of a TCP socket.
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
}

impl<S: Socket> TrackedStream<S> {
    pub(super) fn new(stream: S, slot: ConnectionSlot) -> Self {
        Self { stream, slot, sending: false }
    }

    /// The client's time limit begins when there is something for it to read.
    fn begin_sending(&mut self) {
        if !std::mem::replace(&mut self.sending, true) {
            self.slot.set_sending();
        }
    }
}

impl<S: Socket> Drop for TrackedStream<S> {
    /// Resets an unfinished connection. Otherwise the kernel would keep megabytes of the response for minutes, for a client
    /// that does not read them.
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
        Pin::new(&mut self.stream).poll_read(cx, buffer)
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

    /// Without it, the body would be copied for each client.
    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// hyper flushes when it has nothing left to write: all responses have been sent.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        if std::mem::take(&mut self.sending) {
            self.slot.set_idle();
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
