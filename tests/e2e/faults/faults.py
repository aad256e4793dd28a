"""All faults, in the order of the page."""

import broker_faults as broker_faults
import machine_faults as machine_faults
from fault import FAULTS as FAULTS
