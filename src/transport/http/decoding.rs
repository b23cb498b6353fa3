//! Decodes bodies that a server, or a proxy before it, compressed although `identity` was
//! requested.

use std::collections::VecDeque;
use std::io::Write as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use actix_http::error::PayloadError;
use actix_http::{BoxedPayloadStream, Payload};
use actix_service::Service;
use awc::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, HeaderMap};
use awc::middleware::Transform;
use awc::{ClientResponse, ConnectRequest, ConnectResponse};
use bytes::Bytes;
use flate2::write::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use futures_util::Stream;
use futures_util::future::{MapOk, TryFutureExt as _};

/// Compressed bytes decoded per step. Deflate expands a byte to at most 1,032, so this limits the
/// output held at once to half a MiB; readers limit the whole body.
const STEP: usize = 512;

/// Middleware of an awc client that removes `Content-Encoding` from responses by decoding them.
pub(super) struct Decoding;

impl<S> Transform<S, ConnectRequest> for Decoding
where
    S: Service<ConnectRequest, Response = ConnectResponse>,
{
    type Transform = DecodingService<S>;

    fn new_transform(self, service: S) -> Self::Transform {
        DecodingService(service)
    }
}

pub(super) struct DecodingService<S>(S);

impl<S> Service<ConnectRequest> for DecodingService<S>
where
    S: Service<ConnectRequest, Response = ConnectResponse>,
{
    type Response = ConnectResponse;
    type Error = S::Error;
    type Future = MapOk<S::Future, fn(ConnectResponse) -> ConnectResponse>;

    fn poll_ready(&self, task: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(task)
    }

    fn call(&self, request: ConnectRequest) -> Self::Future {
        self.0.call(request).map_ok(|response| match response {
            ConnectResponse::Client(response) => ConnectResponse::Client(decoded(response)),
            tunnel @ ConnectResponse::Tunnel(..) => tunnel,
        })
    }
}

/// Decodes the body. A response without `Content-Encoding`, the common case, is unchanged.
fn decoded(response: ClientResponse) -> ClientResponse {
    let Some(coding) = response.headers().get(CONTENT_ENCODING) else {
        return response;
    };
    let Some(decoder) = Decoder::of(coding.as_bytes()) else {
        return response;
    };
    response.map_body(|head, body| {
        remove_coding(&mut head.headers);
        let inflating = Inflating {
            body,
            compressed: VecDeque::new(),
            decoder: Some(decoder),
        };
        let payload: BoxedPayloadStream = Box::pin(inflating);
        Payload::Stream { payload }
    })
}

/// Removes the headers that describe the compressed body.
fn remove_coding(headers: &mut HeaderMap) {
    headers.remove(CONTENT_ENCODING);
    headers.remove(CONTENT_LENGTH);
}

enum Decoder {
    Gzip(MultiGzDecoder<Vec<u8>>),
    /// `deflate` before its first byte, which shows whether the data has the zlib format (RFC 9110,
    /// section 8.4.1.2) or, as some servers send it, no wrapper.
    Deflate,
    Zlib(ZlibDecoder<Vec<u8>>),
    Bare(DeflateDecoder<Vec<u8>>),
}

impl Decoder {
    /// The decoder for a coding; `None` for a coding that is not supported.
    fn of(coding: &[u8]) -> Option<Self> {
        let coding = coding.trim_ascii().to_ascii_lowercase();
        match coding.as_slice() {
            b"gzip" | b"x-gzip" => Some(Self::Gzip(MultiGzDecoder::new(Vec::new()))),
            b"deflate" => Some(Self::Deflate),
            _ => None,
        }
    }

    /// Decodes more bytes.
    fn feed(&mut self, bytes: &[u8]) -> std::io::Result<Vec<u8>> {
        if let Self::Deflate = self {
            let is_zlib = bytes.first().is_some_and(|first| first & 0x0f == 8);
            *self = match is_zlib {
                true => Self::Zlib(ZlibDecoder::new(Vec::new())),
                false => Self::Bare(DeflateDecoder::new(Vec::new())),
            };
        }
        match self {
            Self::Gzip(decoder) => {
                decoder.write_all(bytes)?;
                decoder.flush()?;
                Ok(std::mem::take(decoder.get_mut()))
            }
            Self::Zlib(decoder) => {
                decoder.write_all(bytes)?;
                decoder.flush()?;
                Ok(std::mem::take(decoder.get_mut()))
            }
            Self::Bare(decoder) => {
                decoder.write_all(bytes)?;
                decoder.flush()?;
                Ok(std::mem::take(decoder.get_mut()))
            }
            Self::Deflate => Ok(Vec::new()),
        }
    }
}

/// A body that is decoded in steps while it is read.
struct Inflating {
    body: Payload,
    compressed: VecDeque<Bytes>,
    /// `None` after decoding failed.
    decoder: Option<Decoder>,
}

impl Stream for Inflating {
    type Item = Result<Bytes, PayloadError>;

    fn poll_next(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            let Some(decoder) = &mut this.decoder else {
                return Poll::Ready(None);
            };
            if let Some(mut chunk) = this.compressed.pop_front() {
                let step = chunk.split_to(chunk.len().min(STEP));
                if !chunk.is_empty() {
                    this.compressed.push_front(chunk);
                }
                match decoder.feed(&step) {
                    Ok(plain) if plain.is_empty() => {}
                    Ok(plain) => return Poll::Ready(Some(Ok(Bytes::from(plain)))),
                    Err(error) => {
                        this.decoder = None;
                        return Poll::Ready(Some(Err(PayloadError::Io(error))));
                    }
                }
                continue;
            }
            match ready!(Pin::new(&mut this.body).poll_next(task)) {
                Some(Ok(chunk)) => this.compressed.push_back(chunk),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
    use futures_util::StreamExt as _;

    use super::*;

    fn inflating(coding: &str, chunks: Vec<Bytes>) -> Inflating {
        let chunks = futures_util::stream::iter(chunks.into_iter().map(Ok));
        Inflating {
            body: Payload::Stream {
                payload: Box::pin(chunks),
            },
            compressed: VecDeque::new(),
            decoder: Decoder::of(coding.as_bytes()),
        }
    }

    fn compressed(coding: &str, text: &[u8]) -> Vec<u8> {
        let level = Compression::default();
        match coding {
            "zlib" => {
                let mut encoder = ZlibEncoder::new(Vec::new(), level);
                encoder.write_all(text).unwrap();
                encoder.finish().unwrap()
            }
            "bare" => {
                let mut encoder = DeflateEncoder::new(Vec::new(), level);
                encoder.write_all(text).unwrap();
                encoder.finish().unwrap()
            }
            _ => {
                let mut encoder = GzEncoder::new(Vec::new(), level);
                encoder.write_all(text).unwrap();
                encoder.finish().unwrap()
            }
        }
    }

    #[actix::test]
    async fn compressed_bodies_are_read_whatever_their_chunks() {
        let text = b"{\"jsonrpc\":\"2.0\"}".repeat(1000);
        let table = [
            ("gzip", "gzip"),
            ("X-GZIP", "gzip"),
            ("deflate", "zlib"),
            ("deflate", "bare"),
        ];
        for (coding, form) in table {
            let bytes = compressed(form, &text);
            for size in [1, 7, 10_000] {
                let chunks = bytes.chunks(size).map(Bytes::copy_from_slice).collect();
                let mut stream = inflating(coding, chunks);
                let mut all = Vec::new();
                while let Some(chunk) = stream.next().await {
                    all.extend_from_slice(&chunk.unwrap());
                }
                assert_eq!(all, text, "{coding} {form} {size}");
            }
        }
        assert!(Decoder::of(b"br").is_none());
    }

    #[actix::test]
    async fn a_body_that_inflates_without_end_comes_in_small_pieces() {
        let bomb = compressed("gzip", &vec![0; 64 << 20]);
        let mut stream = inflating("gzip", vec![Bytes::from(bomb)]);
        let mut pieces = 0;
        while let Some(chunk) = stream.next().await {
            assert!(chunk.unwrap().len() <= STEP * 1100);
            pieces += 1;
        }
        assert!(pieces > 100);
    }

    #[actix::test]
    async fn bytes_that_are_not_compressed_are_an_error_and_the_end() {
        let mut stream = inflating("gzip", vec![Bytes::from_static(b"{\"jsonrpc\":\"2.0\"}")]);
        assert!(stream.next().await.unwrap().is_err());
        assert!(stream.next().await.is_none());
    }
}
