"""Messages between organisations over HTTPS, with certificates on both sides.

The server listens; a client holds one connection to it, asks for its next question, and posts its
reply. Nothing outside this package imports aiohttp.
"""
