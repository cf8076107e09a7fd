//! `grpc.reflection`: which services there are and what their messages look like, from a set of descriptors that is part of the program.

use std::{
    collections::HashSet,
    sync::{Arc, LazyLock},
};

use bytes::Bytes;
use h2::{RecvStream, server::SendResponse};
use prost::Message;
use prost_types::{DescriptorProto, FileDescriptorProto};

use super::{
    backlog::Backlog,
    framing::{self, MAX_MESSAGE, MessageReader, Piece, decoded, framed},
    messages::reflection::{
        ErrorResponse, FileDescriptorResponse, ListServiceResponse, MessageRequest, MessageResponse,
        ServerReflectionRequest, ServerReflectionResponse, ServiceResponse,
    },
    status::{Code, GrpcStatus},
};

/// Made from `proto/`, whose README says how.
static DESCRIPTORS: &[u8] = include_bytes!("../../../proto/descriptors.bin");

static FILES: LazyLock<Vec<File>> = LazyLock::new(|| {
    let set = FileSet::decode(DESCRIPTORS).unwrap_or_default();
    set.file.into_iter().filter_map(File::read).collect()
});

static SERVICES: LazyLock<Vec<String>> = LazyLock::new(|| {
    let mut all: Vec<String> = FILES.iter().flat_map(|file| file.services.iter().cloned()).collect();
    all.sort_unstable();
    all
});

/// One file of the set.
#[derive(Debug)]
struct File {
    name: String,
    needs: Vec<String>,
    /// Full names of all that the file defines.
    symbols: HashSet<String>,
    services: Vec<String>,
    bytes: Bytes,
}

/// `google.protobuf.FileDescriptorSet`, with each file as it was written: what callers get is what the compiler made.
#[derive(Clone, PartialEq, Message)]
struct FileSet {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    file: Vec<Bytes>,
}

/// Full names of all services.
pub fn services() -> &'static [String] {
    &SERVICES
}

/// Answers until the caller ends.
pub async fn converse(body: RecvStream, mut respond: SendResponse<Bytes>, backlog: Arc<Backlog>) {
    let Ok(mut stream) = framing::begin(&mut respond) else { return };
    let mut questions = MessageReader::new(body, MAX_MESSAGE);
    let mut share = backlog.hold(0);
    let status = loop {
        let message = match questions.next(&mut share).await {
            Ok(Piece::Message(message)) => message,
            Ok(Piece::End) => break GrpcStatus::OK,
            Ok(Piece::Gone) => return,
            Err(status) => break status,
        };
        let question = match decoded(message) {
            Ok(question) => question,
            Err(status) => break status,
        };
        if !framing::send(&mut stream, framed(&answer(question)), &backlog).await {
            return;
        }
    };
    let _gone = framing::end(&mut stream, &status, &backlog);
}

/// Returns the answer to a message, or why there is none.
pub fn answer_any(message: Bytes) -> Result<Bytes, GrpcStatus> {
    decoded(message).map(|question| framed(&answer(question)))
}

fn answer(question: ServerReflectionRequest) -> ServerReflectionResponse {
    let said = match &question.message_request {
        Some(MessageRequest::ListServices(_)) => {
            let service = services().iter().map(|name| ServiceResponse { name: name.clone() }).collect();
            MessageResponse::ListServicesResponse(ListServiceResponse { service })
        }
        Some(MessageRequest::FileByFilename(name)) => {
            with_needs(FILES.iter().find(|file| file.name == *name))
        }
        Some(MessageRequest::FileContainingSymbol(symbol)) => {
            with_needs(FILES.iter().find(|file| file.symbols.contains(symbol)))
        }
        None => with_needs(None),
    };
    ServerReflectionResponse {
        valid_host: question.host.clone(),
        original_request: Some(question),
        message_response: Some(said),
    }
}

/// Returns a file, and all files that it needs.
fn with_needs(file: Option<&'static File>) -> MessageResponse {
    let Some(file) = file else {
        let error_message = "there is nothing of that name".to_owned();
        return MessageResponse::ErrorResponse(ErrorResponse {
            error_code: Code::NotFound as i32,
            error_message,
        });
    };
    let mut files = vec![file];
    let mut at = 0;
    while let Some(file) = files.get(at) {
        let needed = FILES.iter().filter(|other| file.needs.contains(&other.name));
        let new: Vec<_> = needed.filter(|other| files.iter().all(|known| known.name != other.name)).collect();
        files.extend(new);
        at += 1;
    }
    let file_descriptor_proto = files.iter().map(|file| file.bytes.clone()).collect();
    MessageResponse::FileDescriptorResponse(FileDescriptorResponse { file_descriptor_proto })
}

impl File {
    fn read(bytes: Bytes) -> Option<Self> {
        let file = FileDescriptorProto::decode(bytes.clone()).ok()?;
        let mut symbols = HashSet::new();
        for message in &file.message_type {
            add_names(message, file.package(), &mut symbols);
        }
        symbols.extend(file.enum_type.iter().map(|named| format!("{}.{}", file.package(), named.name())));
        let mut services = Vec::new();
        for service in &file.service {
            let name = format!("{}.{}", file.package(), service.name());
            symbols.extend(service.method.iter().map(|method| format!("{name}.{}", method.name())));
            symbols.insert(name.clone());
            services.push(name);
        }
        Some(Self { name: file.name().to_owned(), needs: file.dependency, symbols, services, bytes })
    }
}

/// Adds the full names of a message and of what is nested in it.
fn add_names(message: &DescriptorProto, within: &str, all: &mut HashSet<String>) {
    let name = format!("{within}.{}", message.name());
    all.extend(message.enum_type.iter().map(|named| format!("{name}.{}", named.name())));
    for nested in &message.nested_type {
        add_names(nested, &name, all);
    }
    all.insert(name);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_answered_with_its_file_and_all_that_it_needs() {
        let symbol = "envoy.service.ratelimit.v3.RateLimitService.ShouldRateLimit".to_owned();
        let message_request = Some(MessageRequest::FileContainingSymbol(symbol));
        let said = answer(ServerReflectionRequest { host: String::new(), message_request });
        let Some(MessageResponse::FileDescriptorResponse(files)) = said.message_response else {
            panic!("{:?}", said.message_response)
        };
        let name = |bytes: &Bytes| File::read(bytes.clone()).expect("a descriptor").name;
        let mut names: Vec<String> = files.file_descriptor_proto.iter().map(name).collect();
        assert_eq!(names.remove(0), "envoy/service/ratelimit/v3/rls.proto");
        names.sort_unstable();
        let needed = [
            "envoy/config/core/v3/base.proto",
            "envoy/extensions/common/ratelimit/v3/ratelimit.proto",
            "google/protobuf/duration.proto",
            "google/protobuf/wrappers.proto",
        ];
        assert_eq!(names, needed);
    }

    #[test]
    fn what_is_not_there_is_said_not_to_be() {
        let message_request = Some(MessageRequest::FileByFilename("other.proto".to_owned()));
        let said = answer(ServerReflectionRequest { host: String::new(), message_request });
        assert!(
            matches!(said.message_response, Some(MessageResponse::ErrorResponse(error)) if error.error_code == 5)
        );
    }
}
