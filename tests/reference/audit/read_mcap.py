"""Reads an exported MCAP file with the format's own Python libraries (pip: mcap, mcap-protobuf-support)."""
import json
import sys

from mcap.reader import make_reader
from mcap_protobuf.decoder import DecoderFactory

counts = {}
with open(sys.argv[1], "rb") as stream:
    reader = make_reader(stream, decoder_factories=[DecoderFactory()])
    for schema, channel, message in reader.iter_messages():
        counts[channel.topic] = counts.get(channel.topic, 0) + 1
        if channel.message_encoding == "json":
            assert json.loads(message.data)["schema"] == 1
with open(sys.argv[1], "rb") as stream:
    reader = make_reader(stream, decoder_factories=[DecoderFactory()])
    for schema, channel, message, decoded in reader.iter_decoded_messages(topics=["/steadfast/veto", "/steadfast/image"]):
        if schema.name == "foxglove.CompressedImage":
            print(channel.topic, decoded.format, bytes(decoded.data), decoded.timestamp.ToNanoseconds() == message.log_time)
        else:
            print(channel.topic, decoded.check_id, decoded.reason, decoded.mode, decoded.detail)
print(counts)
