"""HTTPS with certificates on both sides: one WebSocket per site, opened by the site.

Sites connect out, so that no hospital opens a port. TLS, frames and pings are aiohttp's.
"""
