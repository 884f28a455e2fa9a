"""Odd requests, sent to Apache Kafka and to Ottla alike, and how their answers differ.

values       what differs between two servers that were told the same: ids, epochs; batches made of them
peer         one of the two: its connection, and what it gave
world        the topics, groups, transactions and producers that requests speak of, made alike on both
pools        values for the fields of requests: sound ones and odd ones, by the name of the field
generator    requests drawn from the declarations of wire/
answers      an answer as paths and values, without what no two servers share
differences  the differences that are known, each with its reason
pair         both servers, asked the same
scenarios    sequences written by hand
"""
