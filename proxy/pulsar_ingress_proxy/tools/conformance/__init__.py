"""`conformance`: from a client's place, do lookups through each ingress lead to brokers that can be reached?"""
