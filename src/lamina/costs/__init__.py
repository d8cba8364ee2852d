"""What requests cost, and what they would have cost without lamina: one table, and what is asked of it.

    the gateway's log ──▶ uncut_requests ──▶ requests ──▶ table ──▶ sums, savings, lists, files

Read `requests.py` first: it has the row.
"""
