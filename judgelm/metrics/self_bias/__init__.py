"""Self- and family-bias of judges, estimated against reference scores."""

from judgelm.former_names import former_attributes

__getattr__ = former_attributes(__name__)
