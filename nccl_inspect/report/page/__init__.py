"""What the HTML report shows: tables for its template (``sections``) and the data of its drawings (``data``).

``page.html.j2`` is the page, ``page.css`` and the ``*.js`` files are put into it, in the order of their names.
"""
