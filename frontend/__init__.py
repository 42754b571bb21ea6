"""HTTP for programs that do not speak Redis.

    request -> gate (key, token, timers) -> route (body to records) -> Served -> Calls -> Redis ... node ... Redis -> reply

`app.py` builds the application, `server/` runs the application in several processes.
"""
