//! `grpc.reflection.v1`, and `v1alpha`, which is the same on the wire.

use bytes::Bytes;
use prost::Message;

/// The message `grpc.reflection.v1.ServerReflectionRequest`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ServerReflectionRequest {
    /// The name of a host, which is not used here.
    #[prost(string, tag = "1")]
    pub host: String,
    /// The question.
    #[prost(oneof = "MessageRequest", tags = "3, 4, 7")]
    pub message_request: Option<MessageRequest>,
}

/// A question about descriptors. Questions about extensions are not read: there are no extensions.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum MessageRequest {
    /// A file by its name.
    #[prost(string, tag = "3")]
    FileByFilename(String),
    /// The file that defines a name.
    #[prost(string, tag = "4")]
    FileContainingSymbol(String),
    /// Asks for the names of all services.
    #[prost(string, tag = "7")]
    ListServices(String),
}

/// The message `grpc.reflection.v1.ServerReflectionResponse`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ServerReflectionResponse {
    /// The name of a host, as in the question.
    #[prost(string, tag = "1")]
    pub valid_host: String,
    /// The question.
    #[prost(message, optional, tag = "2")]
    pub original_request: Option<ServerReflectionRequest>,
    /// The answer.
    #[prost(oneof = "MessageResponse", tags = "4, 6, 7")]
    pub message_response: Option<MessageResponse>,
}

/// An answer about descriptors.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum MessageResponse {
    /// A file and all that it needs.
    #[prost(message, tag = "4")]
    FileDescriptorResponse(FileDescriptorResponse),
    /// The names of all services.
    #[prost(message, tag = "6")]
    ListServicesResponse(ListServiceResponse),
    /// There is no such descriptor.
    #[prost(message, tag = "7")]
    ErrorResponse(ErrorResponse),
}

/// The message `grpc.reflection.v1.FileDescriptorResponse`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct FileDescriptorResponse {
    /// The descriptors, each an encoded `google.protobuf.FileDescriptorProto`.
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub file_descriptor_proto: Vec<Bytes>,
}

/// The message `grpc.reflection.v1.ListServiceResponse`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ListServiceResponse {
    /// The services.
    #[prost(message, repeated, tag = "1")]
    pub service: Vec<ServiceResponse>,
}

/// The message `grpc.reflection.v1.ServiceResponse`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ServiceResponse {
    /// The full name of the service.
    #[prost(string, tag = "1")]
    pub name: String,
}

/// The message `grpc.reflection.v1.ErrorResponse`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ErrorResponse {
    /// A code of gRPC.
    #[prost(int32, tag = "1")]
    pub error_code: i32,
    /// The error, as a sentence.
    #[prost(string, tag = "2")]
    pub error_message: String,
}
