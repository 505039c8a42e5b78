"""Self- and family-bias of judges, estimated against reference scores."""
