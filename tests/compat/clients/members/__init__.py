"""Members of groups and transactional writers of every client, each in a process that can be killed for real.

A process imports the one client it is made of: three at once would double the time that it takes to start.
"""
