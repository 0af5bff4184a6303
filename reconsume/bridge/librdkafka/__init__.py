"""Ways around defects of librdkafka and confluent-kafka, one file for each."""
