"""The inspector: what a model saw in each request, what it did not see, and why.

    sessions ──▶ building ──▶ views ──▶ pages ──▶ server, or one file
    what was     every call    JSON      HTTP
    recorded     built again

A recorded session is built again call by call, which is exact because a build is pure. `views` turns builds
into JSON, and the page in `static` draws that JSON. Nothing is sent anywhere.
"""
