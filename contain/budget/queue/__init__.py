"""Tickets and waiting.

wake        a FIFO for each waiter: who may go on is told, who is gone is noticed
reconcile   rows and fresh observations: what becomes of the dead
desk        every change of the registry: it is judged in the same commit
waiting     one request from its ticket to its grant
"""
