"""Ratios measured side by side in one run; nothing here is asserted, and no test is timed."""
